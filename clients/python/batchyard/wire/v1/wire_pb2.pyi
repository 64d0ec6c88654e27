import datetime

from batchyard.v1 import node_service_pb2 as _node_service_pb2
from batchyard.v1 import scheduler_service_pb2 as _scheduler_service_pb2
from batchyard.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PackedMultiplexRequest(_message.Message):
    __slots__ = ("open", "calls", "cancel_call_ids", "done")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    open: _scheduler_service_pb2.MultiplexOpen
    calls: _containers.RepeatedScalarFieldContainer[bytes]
    cancel_call_ids: _containers.RepeatedScalarFieldContainer[int]
    done: bool
    def __init__(self, open: _Optional[_Union[_scheduler_service_pb2.MultiplexOpen, _Mapping]] = ..., calls: _Optional[_Iterable[bytes]] = ..., cancel_call_ids: _Optional[_Iterable[int]] = ..., done: bool = ...) -> None: ...

class PackedCall(_message.Message):
    __slots__ = ("call_id", "request", "stream", "detach_grace", "attach")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: bytes
    stream: bool
    detach_grace: bytes
    attach: _scheduler_service_pb2.AttachPoint
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[bytes] = ..., stream: bool = ..., detach_grace: _Optional[bytes] = ..., attach: _Optional[_Union[_scheduler_service_pb2.AttachPoint, _Mapping]] = ...) -> None: ...

class PackedGenerateRequest(_message.Message):
    __slots__ = ("request", "detach_grace", "attach")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    detach_grace: bytes
    attach: _scheduler_service_pb2.AttachPoint
    def __init__(self, request: _Optional[bytes] = ..., detach_grace: _Optional[bytes] = ..., attach: _Optional[_Union[_scheduler_service_pb2.AttachPoint, _Mapping]] = ...) -> None: ...

class PackedMultiplexResponse(_message.Message):
    __slots__ = ("opened", "accepted", "started", "deltas", "results", "max_outstanding", "going_away")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    opened: _scheduler_service_pb2.MultiplexOpened
    accepted: _containers.RepeatedCompositeFieldContainer[_scheduler_service_pb2.Accepted]
    started: _containers.RepeatedCompositeFieldContainer[_scheduler_service_pb2.Started]
    deltas: _types_pb2.TokenDeltas
    results: _containers.RepeatedCompositeFieldContainer[PackedCallResult]
    max_outstanding: int
    going_away: bool
    def __init__(self, opened: _Optional[_Union[_scheduler_service_pb2.MultiplexOpened, _Mapping]] = ..., accepted: _Optional[_Iterable[_Union[_scheduler_service_pb2.Accepted, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[_scheduler_service_pb2.Started, _Mapping]]] = ..., deltas: _Optional[_Union[_types_pb2.TokenDeltas, _Mapping]] = ..., results: _Optional[_Iterable[_Union[PackedCallResult, _Mapping]]] = ..., max_outstanding: _Optional[int] = ..., going_away: bool = ...) -> None: ...

class PackedCallResult(_message.Message):
    __slots__ = ("call_id", "result")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    result: bytes
    def __init__(self, call_id: _Optional[int] = ..., result: _Optional[bytes] = ...) -> None: ...

class PackedConnectRequest(_message.Message):
    __slots__ = ("hello", "descriptor", "updates", "deltas", "results", "credits", "report", "command_results", "drain", "pong")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_RESULTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    hello: _node_service_pb2.Hello
    descriptor: _node_service_pb2.NodeDescriptor
    updates: _containers.RepeatedCompositeFieldContainer[_node_service_pb2.ItemUpdate]
    deltas: _types_pb2.TokenDeltas
    results: _containers.RepeatedCompositeFieldContainer[PackedItemResult]
    credits: _containers.RepeatedCompositeFieldContainer[_node_service_pb2.Credit]
    report: _node_service_pb2.NodeReport
    command_results: _containers.RepeatedCompositeFieldContainer[_node_service_pb2.CommandResult]
    drain: _node_service_pb2.Drain
    pong: _node_service_pb2.Pong
    def __init__(self, hello: _Optional[_Union[_node_service_pb2.Hello, _Mapping]] = ..., descriptor: _Optional[_Union[_node_service_pb2.NodeDescriptor, _Mapping]] = ..., updates: _Optional[_Iterable[_Union[_node_service_pb2.ItemUpdate, _Mapping]]] = ..., deltas: _Optional[_Union[_types_pb2.TokenDeltas, _Mapping]] = ..., results: _Optional[_Iterable[_Union[PackedItemResult, _Mapping]]] = ..., credits: _Optional[_Iterable[_Union[_node_service_pb2.Credit, _Mapping]]] = ..., report: _Optional[_Union[_node_service_pb2.NodeReport, _Mapping]] = ..., command_results: _Optional[_Iterable[_Union[_node_service_pb2.CommandResult, _Mapping]]] = ..., drain: _Optional[_Union[_node_service_pb2.Drain, _Mapping]] = ..., pong: _Optional[_Union[_node_service_pb2.Pong, _Mapping]] = ...) -> None: ...

class PackedItemResult(_message.Message):
    __slots__ = ("dispatch_id", "attempt", "finish_reason", "error", "outputs", "usage", "timings", "refused")
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    dispatch_id: int
    attempt: int
    finish_reason: _types_pb2.FinishReason
    error: _types_pb2.Error
    outputs: _containers.RepeatedScalarFieldContainer[bytes]
    usage: _types_pb2.Usage
    timings: bytes
    refused: bool
    def __init__(self, dispatch_id: _Optional[int] = ..., attempt: _Optional[int] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., outputs: _Optional[_Iterable[bytes]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[bytes] = ..., refused: bool = ...) -> None: ...

class PackedConnectResponse(_message.Message):
    __slots__ = ("welcome", "results_acked", "batches", "cancels", "commands", "drain", "ping", "goodbye")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RESULTS_ACKED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    welcome: _node_service_pb2.Welcome
    results_acked: int
    batches: _containers.RepeatedCompositeFieldContainer[PackedDispatchBatch]
    cancels: _containers.RepeatedCompositeFieldContainer[_node_service_pb2.Cancel]
    commands: _containers.RepeatedCompositeFieldContainer[_node_service_pb2.Command]
    drain: _node_service_pb2.Drain
    ping: _node_service_pb2.Ping
    goodbye: _node_service_pb2.Goodbye
    def __init__(self, welcome: _Optional[_Union[_node_service_pb2.Welcome, _Mapping]] = ..., results_acked: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[PackedDispatchBatch, _Mapping]]] = ..., cancels: _Optional[_Iterable[_Union[_node_service_pb2.Cancel, _Mapping]]] = ..., commands: _Optional[_Iterable[_Union[_node_service_pb2.Command, _Mapping]]] = ..., drain: _Optional[_Union[_node_service_pb2.Drain, _Mapping]] = ..., ping: _Optional[_Union[_node_service_pb2.Ping, _Mapping]] = ..., goodbye: _Optional[_Union[_node_service_pb2.Goodbye, _Mapping]] = ...) -> None: ...

class PackedDispatchBatch(_message.Message):
    __slots__ = ("batch_id", "engine_id", "model", "items", "trace", "atomic")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    engine_id: str
    model: str
    items: _containers.RepeatedScalarFieldContainer[bytes]
    trace: _types_pb2.TraceContext
    atomic: bool
    def __init__(self, batch_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., items: _Optional[_Iterable[bytes]] = ..., trace: _Optional[_Union[_types_pb2.TraceContext, _Mapping]] = ..., atomic: bool = ...) -> None: ...

class PackedDispatchItem(_message.Message):
    __slots__ = ("dispatch_id", "attempt", "request", "request_id", "tenant", "request_class", "priority", "max_tokens", "remaining", "charge", "trace", "output_id", "continuation", "stream", "cookie")
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CLASS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    CHARGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    dispatch_id: int
    attempt: int
    request: bytes
    request_id: str
    tenant: str
    request_class: _types_pb2.RequestClass
    priority: int
    max_tokens: int
    remaining: _duration_pb2.Duration
    charge: _node_service_pb2.Charge
    trace: _types_pb2.TraceContext
    output_id: int
    continuation: _node_service_pb2.Continuation
    stream: bool
    cookie: bytes
    def __init__(self, dispatch_id: _Optional[int] = ..., attempt: _Optional[int] = ..., request: _Optional[bytes] = ..., request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., request_class: _Optional[_Union[_types_pb2.RequestClass, str]] = ..., priority: _Optional[int] = ..., max_tokens: _Optional[int] = ..., remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., charge: _Optional[_Union[_node_service_pb2.Charge, _Mapping]] = ..., trace: _Optional[_Union[_types_pb2.TraceContext, _Mapping]] = ..., output_id: _Optional[int] = ..., continuation: _Optional[_Union[_node_service_pb2.Continuation, _Mapping]] = ..., stream: bool = ..., cookie: _Optional[bytes] = ...) -> None: ...

class PackedInferenceResult(_message.Message):
    __slots__ = ("request_id", "model", "finish_reason", "error", "outputs", "partial", "usage", "timings", "attempts", "degraded", "degrade_reason", "node_id", "output_id", "preemptions", "replayed", "trace_id", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    DEGRADE_REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    finish_reason: _types_pb2.FinishReason
    error: _types_pb2.Error
    outputs: _containers.RepeatedScalarFieldContainer[bytes]
    partial: bool
    usage: _types_pb2.Usage
    timings: bytes
    attempts: _containers.RepeatedScalarFieldContainer[bytes]
    degraded: bool
    degrade_reason: str
    node_id: str
    output_id: int
    preemptions: int
    replayed: bool
    trace_id: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., outputs: _Optional[_Iterable[bytes]] = ..., partial: bool = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[bytes] = ..., attempts: _Optional[_Iterable[bytes]] = ..., degraded: bool = ..., degrade_reason: _Optional[str] = ..., node_id: _Optional[str] = ..., output_id: _Optional[int] = ..., preemptions: _Optional[int] = ..., replayed: bool = ..., trace_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PackedTimings(_message.Message):
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
    engine: bytes
    def __init__(self, receive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dispatch_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., first_token_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., engine: _Optional[bytes] = ...) -> None: ...
