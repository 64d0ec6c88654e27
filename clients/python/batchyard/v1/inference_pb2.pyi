import datetime

from batchyard.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResumeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESUME_MODE_UNSPECIFIED: _ClassVar[ResumeMode]
    RESUME_MODE_FAIL: _ClassVar[ResumeMode]
    RESUME_MODE_CONTINUE: _ClassVar[ResumeMode]
    RESUME_MODE_RESTART: _ClassVar[ResumeMode]
RESUME_MODE_UNSPECIFIED: ResumeMode
RESUME_MODE_FAIL: ResumeMode
RESUME_MODE_CONTINUE: ResumeMode
RESUME_MODE_RESTART: ResumeMode

class InferenceRequest(_message.Message):
    __slots__ = ("request_id", "model", "priority", "task_type", "tenant", "user_id", "timeout", "max_wait", "degrade", "failover", "affinity_key", "trace", "labels", "cost_hint", "text", "chat", "tokens", "tensors", "embedding", "raw", "ref", "params", "output")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    DEGRADE_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_KEY_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    COST_HINT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    priority: int
    task_type: str
    tenant: str
    user_id: str
    timeout: _duration_pb2.Duration
    max_wait: _duration_pb2.Duration
    degrade: DegradePolicy
    failover: FailoverPolicy
    affinity_key: str
    trace: _types_pb2.TraceContext
    labels: _containers.ScalarMap[str, str]
    cost_hint: CostHint
    text: TextInput
    chat: ChatInput
    tokens: TokenInput
    tensors: TensorInput
    embedding: EmbeddingInput
    raw: RawInput
    ref: PayloadRef
    params: GenerationParams
    output: OutputOptions
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., priority: _Optional[int] = ..., task_type: _Optional[str] = ..., tenant: _Optional[str] = ..., user_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., degrade: _Optional[_Union[DegradePolicy, _Mapping]] = ..., failover: _Optional[_Union[FailoverPolicy, _Mapping]] = ..., affinity_key: _Optional[str] = ..., trace: _Optional[_Union[_types_pb2.TraceContext, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., cost_hint: _Optional[_Union[CostHint, _Mapping]] = ..., text: _Optional[_Union[TextInput, _Mapping]] = ..., chat: _Optional[_Union[ChatInput, _Mapping]] = ..., tokens: _Optional[_Union[TokenInput, _Mapping]] = ..., tensors: _Optional[_Union[TensorInput, _Mapping]] = ..., embedding: _Optional[_Union[EmbeddingInput, _Mapping]] = ..., raw: _Optional[_Union[RawInput, _Mapping]] = ..., ref: _Optional[_Union[PayloadRef, _Mapping]] = ..., params: _Optional[_Union[GenerationParams, _Mapping]] = ..., output: _Optional[_Union[OutputOptions, _Mapping]] = ...) -> None: ...

class DegradePolicy(_message.Message):
    __slots__ = ("models", "use_ladder", "min_quality", "after", "min_max_tokens")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    USE_LADDER_FIELD_NUMBER: _ClassVar[int]
    MIN_QUALITY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MIN_MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    use_ladder: bool
    min_quality: float
    after: _duration_pb2.Duration
    min_max_tokens: int
    def __init__(self, models: _Optional[_Iterable[str]] = ..., use_ladder: bool = ..., min_quality: _Optional[float] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., min_max_tokens: _Optional[int] = ...) -> None: ...

class FailoverPolicy(_message.Message):
    __slots__ = ("max_attempts", "resume_mode")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_MODE_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    resume_mode: ResumeMode
    def __init__(self, max_attempts: _Optional[int] = ..., resume_mode: _Optional[_Union[ResumeMode, str]] = ...) -> None: ...

class CostHint(_message.Message):
    __slots__ = ("prompt_tokens", "expected_output_tokens", "service_time")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_TIME_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    expected_output_tokens: int
    service_time: _duration_pb2.Duration
    def __init__(self, prompt_tokens: _Optional[int] = ..., expected_output_tokens: _Optional[int] = ..., service_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TextInput(_message.Message):
    __slots__ = ("prompt",)
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    def __init__(self, prompt: _Optional[str] = ...) -> None: ...

class ChatInput(_message.Message):
    __slots__ = ("messages", "tools_json", "tool_choice")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    tools_json: str
    tool_choice: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., tools_json: _Optional[str] = ..., tool_choice: _Optional[str] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "parts", "name", "tool_call_id", "tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    name: str
    tool_call_id: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    def __init__(self, role: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ..., name: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "image", "audio", "file")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: PayloadRef
    audio: PayloadRef
    file: PayloadRef
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[PayloadRef, _Mapping]] = ..., audio: _Optional[_Union[PayloadRef, _Mapping]] = ..., file: _Optional[_Union[PayloadRef, _Mapping]] = ...) -> None: ...

class TokenInput(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class EmbeddingInput(_message.Message):
    __slots__ = ("texts", "dimensions")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    dimensions: int
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., dimensions: _Optional[int] = ...) -> None: ...

class TensorInput(_message.Message):
    __slots__ = ("tensors", "output_names")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAMES_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    output_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., output_names: _Optional[_Iterable[str]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "datatype", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    datatype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., datatype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class RawInput(_message.Message):
    __slots__ = ("content_type", "data")
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    content_type: str
    data: bytes
    def __init__(self, content_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PayloadRef(_message.Message):
    __slots__ = ("uri", "inline", "media_type", "sha256", "size_bytes")
    URI_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    uri: str
    inline: bytes
    media_type: str
    sha256: bytes
    size_bytes: int
    def __init__(self, uri: _Optional[str] = ..., inline: _Optional[bytes] = ..., media_type: _Optional[str] = ..., sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class GenerationParams(_message.Message):
    __slots__ = ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed", "stop", "stop_token_ids", "ignore_eos", "n", "logit_bias", "json_schema", "regex", "grammar", "json_object", "engine_options_json")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    n: int
    logit_bias: _containers.ScalarMap[int, float]
    json_schema: str
    regex: str
    grammar: str
    json_object: bool
    engine_options_json: str
    def __init__(self, max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: bool = ..., n: _Optional[int] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., grammar: _Optional[str] = ..., json_object: bool = ..., engine_options_json: _Optional[str] = ...) -> None: ...

class OutputOptions(_message.Message):
    __slots__ = ("token_ids", "omit_text", "logprobs", "stream_usage", "min_delta_interval")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OMIT_TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    STREAM_USAGE_FIELD_NUMBER: _ClassVar[int]
    MIN_DELTA_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    token_ids: bool
    omit_text: bool
    logprobs: int
    stream_usage: bool
    min_delta_interval: _duration_pb2.Duration
    def __init__(self, token_ids: bool = ..., omit_text: bool = ..., logprobs: _Optional[int] = ..., stream_usage: bool = ..., min_delta_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class InferenceResult(_message.Message):
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
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    partial: bool
    usage: _types_pb2.Usage
    timings: _types_pb2.Timings
    attempts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Attempt]
    degraded: bool
    degrade_reason: str
    node_id: str
    output_id: int
    preemptions: int
    replayed: bool
    trace_id: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., partial: bool = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ..., attempts: _Optional[_Iterable[_Union[_types_pb2.Attempt, _Mapping]]] = ..., degraded: bool = ..., degrade_reason: _Optional[str] = ..., node_id: _Optional[str] = ..., output_id: _Optional[int] = ..., preemptions: _Optional[int] = ..., replayed: bool = ..., trace_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("index", "text", "reasoning", "tool_calls", "token_ids", "logprobs", "embedding", "tensors", "raw", "finish_reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.TokenLogprob]
    embedding: _containers.RepeatedScalarFieldContainer[float]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    raw: RawOutput
    finish_reason: _types_pb2.FinishReason
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_types_pb2.TokenLogprob, _Mapping]]] = ..., embedding: _Optional[_Iterable[float]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., raw: _Optional[_Union[RawOutput, _Mapping]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ...) -> None: ...

class RawOutput(_message.Message):
    __slots__ = ("content_type", "data")
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    content_type: str
    data: bytes
    def __init__(self, content_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
