import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_CLASS_UNSPECIFIED: _ClassVar[RequestClass]
    REQUEST_CLASS_INTERACTIVE: _ClassVar[RequestClass]
    REQUEST_CLASS_JOB: _ClassVar[RequestClass]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
    FINISH_REASON_CONTENT_FILTER: _ClassVar[FinishReason]
    FINISH_REASON_COMPLETE: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_EXPIRED: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
    FINISH_REASON_REJECTED: _ClassVar[FinishReason]

class ModelState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_STATE_UNSPECIFIED: _ClassVar[ModelState]
    MODEL_STATE_AVAILABLE: _ClassVar[ModelState]
    MODEL_STATE_LOADING: _ClassVar[ModelState]
    MODEL_STATE_ACTIVE: _ClassVar[ModelState]
    MODEL_STATE_UNLOADING: _ClassVar[ModelState]
    MODEL_STATE_FAILED: _ClassVar[ModelState]

class AttemptState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_STATE_UNSPECIFIED: _ClassVar[AttemptState]
    ATTEMPT_STATE_RUNNING: _ClassVar[AttemptState]
    ATTEMPT_STATE_SUCCEEDED: _ClassVar[AttemptState]
    ATTEMPT_STATE_FAILED: _ClassVar[AttemptState]
    ATTEMPT_STATE_CANCELLED: _ClassVar[AttemptState]
    ATTEMPT_STATE_LOST: _ClassVar[AttemptState]
    ATTEMPT_STATE_REFUSED: _ClassVar[AttemptState]
    ATTEMPT_STATE_PREEMPTED: _ClassVar[AttemptState]
    ATTEMPT_STATE_REVOKED: _ClassVar[AttemptState]

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_ARGUMENT: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_CONTEXT_TOO_LONG: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_RESOURCE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_UNSUPPORTED_FEATURE: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_QUOTA_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_CANCELLED_BY_CLIENT: _ClassVar[ErrorReason]
    ERROR_REASON_CLIENT_TOO_SLOW: _ClassVar[ErrorReason]
    ERROR_REASON_QUEUE_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_SHED: _ClassVar[ErrorReason]
    ERROR_REASON_MAX_WAIT_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_UNREACHABLE: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_NO_CAPACITY: _ClassVar[ErrorReason]
    ERROR_REASON_SCHEDULER_STARTING: _ClassVar[ErrorReason]
    ERROR_REASON_SCHEDULER_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_CANCELLED_BY_ADMIN: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_NODE_LOST: _ClassVar[ErrorReason]
    ERROR_REASON_ATTEMPTS_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_RETRY_BUDGET_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_STREAM_INTERRUPTED: _ClassVar[ErrorReason]
    ERROR_REASON_POISONED: _ClassVar[ErrorReason]
    ERROR_REASON_PREEMPTED: _ClassVar[ErrorReason]
    ERROR_REASON_REVOKED: _ClassVar[ErrorReason]
    ERROR_REASON_NODE_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_BUSY: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_OOM: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_STALLED: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_ERROR: _ClassVar[ErrorReason]
    ERROR_REASON_NODE_ID_IN_USE: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_TERM: _ClassVar[ErrorReason]
    ERROR_REASON_SESSION_REPLACED: _ClassVar[ErrorReason]
    ERROR_REASON_PROTOCOL_VIOLATION: _ClassVar[ErrorReason]
    ERROR_REASON_ETAG_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
REQUEST_CLASS_UNSPECIFIED: RequestClass
REQUEST_CLASS_INTERACTIVE: RequestClass
REQUEST_CLASS_JOB: RequestClass
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason
FINISH_REASON_CONTENT_FILTER: FinishReason
FINISH_REASON_COMPLETE: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_EXPIRED: FinishReason
FINISH_REASON_ERROR: FinishReason
FINISH_REASON_REJECTED: FinishReason
MODEL_STATE_UNSPECIFIED: ModelState
MODEL_STATE_AVAILABLE: ModelState
MODEL_STATE_LOADING: ModelState
MODEL_STATE_ACTIVE: ModelState
MODEL_STATE_UNLOADING: ModelState
MODEL_STATE_FAILED: ModelState
ATTEMPT_STATE_UNSPECIFIED: AttemptState
ATTEMPT_STATE_RUNNING: AttemptState
ATTEMPT_STATE_SUCCEEDED: AttemptState
ATTEMPT_STATE_FAILED: AttemptState
ATTEMPT_STATE_CANCELLED: AttemptState
ATTEMPT_STATE_LOST: AttemptState
ATTEMPT_STATE_REFUSED: AttemptState
ATTEMPT_STATE_PREEMPTED: AttemptState
ATTEMPT_STATE_REVOKED: AttemptState
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_ARGUMENT: ErrorReason
ERROR_REASON_REQUEST_TOO_LARGE: ErrorReason
ERROR_REASON_CONTEXT_TOO_LONG: ErrorReason
ERROR_REASON_MODEL_NOT_FOUND: ErrorReason
ERROR_REASON_RESOURCE_NOT_FOUND: ErrorReason
ERROR_REASON_REQUEST_ID_CONFLICT: ErrorReason
ERROR_REASON_UNSUPPORTED_FEATURE: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_QUOTA_EXCEEDED: ErrorReason
ERROR_REASON_CANCELLED_BY_CLIENT: ErrorReason
ERROR_REASON_CLIENT_TOO_SLOW: ErrorReason
ERROR_REASON_QUEUE_FULL: ErrorReason
ERROR_REASON_SHED: ErrorReason
ERROR_REASON_MAX_WAIT_EXCEEDED: ErrorReason
ERROR_REASON_DEADLINE_UNREACHABLE: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_NO_CAPACITY: ErrorReason
ERROR_REASON_SCHEDULER_STARTING: ErrorReason
ERROR_REASON_SCHEDULER_DRAINING: ErrorReason
ERROR_REASON_CANCELLED_BY_ADMIN: ErrorReason
ERROR_REASON_STORE_FAILED: ErrorReason
ERROR_REASON_NODE_LOST: ErrorReason
ERROR_REASON_ATTEMPTS_EXHAUSTED: ErrorReason
ERROR_REASON_RETRY_BUDGET_EXHAUSTED: ErrorReason
ERROR_REASON_STREAM_INTERRUPTED: ErrorReason
ERROR_REASON_POISONED: ErrorReason
ERROR_REASON_PREEMPTED: ErrorReason
ERROR_REASON_REVOKED: ErrorReason
ERROR_REASON_NODE_DRAINING: ErrorReason
ERROR_REASON_ENGINE_BUSY: ErrorReason
ERROR_REASON_ENGINE_UNAVAILABLE: ErrorReason
ERROR_REASON_ENGINE_OOM: ErrorReason
ERROR_REASON_ENGINE_STALLED: ErrorReason
ERROR_REASON_ENGINE_ERROR: ErrorReason
ERROR_REASON_NODE_ID_IN_USE: ErrorReason
ERROR_REASON_STALE_TERM: ErrorReason
ERROR_REASON_SESSION_REPLACED: ErrorReason
ERROR_REASON_PROTOCOL_VIOLATION: ErrorReason
ERROR_REASON_ETAG_MISMATCH: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason

class TraceContext(_message.Message):
    __slots__ = ("traceparent", "tracestate", "baggage")
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    BAGGAGE_FIELD_NUMBER: _ClassVar[int]
    traceparent: str
    tracestate: str
    baggage: str
    def __init__(self, traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., baggage: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_output_tokens", "wasted_output_tokens", "partial")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WASTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    reasoning_output_tokens: int
    wasted_output_tokens: int
    partial: bool
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., reasoning_output_tokens: _Optional[int] = ..., wasted_output_tokens: _Optional[int] = ..., partial: bool = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("receive_time", "dispatch_time", "first_token_time", "finish_time", "queue_duration", "engine")
    RECEIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_TIME_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DURATION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    receive_time: _timestamp_pb2.Timestamp
    dispatch_time: _timestamp_pb2.Timestamp
    first_token_time: _timestamp_pb2.Timestamp
    finish_time: _timestamp_pb2.Timestamp
    queue_duration: _duration_pb2.Duration
    engine: EngineTimings
    def __init__(self, receive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dispatch_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., first_token_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., engine: _Optional[_Union[EngineTimings, _Mapping]] = ...) -> None: ...

class EngineTimings(_message.Message):
    __slots__ = ("local_queue", "engine_queue", "prefill", "decode", "total", "batch_size")
    LOCAL_QUEUE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_QUEUE_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    local_queue: _duration_pb2.Duration
    engine_queue: _duration_pb2.Duration
    prefill: _duration_pb2.Duration
    decode: _duration_pb2.Duration
    total: _duration_pb2.Duration
    batch_size: int
    def __init__(self, local_queue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., engine_queue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., prefill: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., decode: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., batch_size: _Optional[int] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("number", "dispatch_id", "node_id", "engine_id", "model", "start_time", "end_time", "state", "error", "output_tokens", "batch_id", "batch_size", "output_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    dispatch_id: int
    node_id: str
    engine_id: str
    model: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    state: AttemptState
    error: Error
    output_tokens: int
    batch_id: str
    batch_size: int
    output_id: int
    def __init__(self, number: _Optional[int] = ..., dispatch_id: _Optional[int] = ..., node_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[AttemptState, str]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., output_tokens: _Optional[int] = ..., batch_id: _Optional[str] = ..., batch_size: _Optional[int] = ..., output_id: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "reason", "message", "retryable", "retry_after", "metadata", "field")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: ErrorReason
    message: str
    retryable: bool
    retry_after: _duration_pb2.Duration
    metadata: _containers.ScalarMap[str, str]
    field: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ..., retryable: bool = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., field: _Optional[str] = ...) -> None: ...

class TokenDeltas(_message.Message):
    __slots__ = ("ids", "offsets", "texts", "token_counts", "token_id_counts", "choice_indexes", "channels", "token_ids", "extras")
    IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_COUNTS_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEXES_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    token_counts: _containers.RepeatedScalarFieldContainer[int]
    token_id_counts: _containers.RepeatedScalarFieldContainer[int]
    choice_indexes: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    extras: _containers.RepeatedCompositeFieldContainer[DeltaExtra]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., texts: _Optional[_Iterable[str]] = ..., token_counts: _Optional[_Iterable[int]] = ..., token_id_counts: _Optional[_Iterable[int]] = ..., choice_indexes: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., extras: _Optional[_Iterable[_Union[DeltaExtra, _Mapping]]] = ...) -> None: ...

class DeltaExtra(_message.Message):
    __slots__ = ("id", "choice_index", "channel", "offset", "tool_call", "logprobs", "usage")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    choice_index: int
    channel: int
    offset: int
    tool_call: ToolCall
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    usage: Usage
    def __init__(self, id: _Optional[int] = ..., choice_index: _Optional[int] = ..., channel: _Optional[int] = ..., offset: _Optional[int] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...

class StreamOffset(_message.Message):
    __slots__ = ("choice_index", "channel", "offset")
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    choice_index: int
    channel: int
    offset: int
    def __init__(self, choice_index: _Optional[int] = ..., channel: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments_json", "index")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments_json: str
    index: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments_json: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "token_id", "logprob", "alternatives")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    token_id: int
    logprob: float
    alternatives: _containers.RepeatedCompositeFieldContainer[AlternativeToken]
    def __init__(self, token: _Optional[bytes] = ..., token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., alternatives: _Optional[_Iterable[_Union[AlternativeToken, _Mapping]]] = ...) -> None: ...

class AlternativeToken(_message.Message):
    __slots__ = ("token", "token_id", "logprob")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    token_id: int
    logprob: float
    def __init__(self, token: _Optional[bytes] = ..., token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class Money(_message.Message):
    __slots__ = ("currency", "micros")
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    MICROS_FIELD_NUMBER: _ClassVar[int]
    currency: str
    micros: int
    def __init__(self, currency: _Optional[str] = ..., micros: _Optional[int] = ...) -> None: ...
