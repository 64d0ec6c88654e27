import datetime

from batchyard.v1 import inference_pb2 as _inference_pb2
from batchyard.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EngineMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_MODE_UNSPECIFIED: _ClassVar[EngineMode]
    ENGINE_MODE_STATIC: _ClassVar[EngineMode]
    ENGINE_MODE_CONTINUOUS: _ClassVar[EngineMode]

class EngineHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_HEALTH_UNSPECIFIED: _ClassVar[EngineHealth]
    ENGINE_HEALTH_STARTING: _ClassVar[EngineHealth]
    ENGINE_HEALTH_SERVING: _ClassVar[EngineHealth]
    ENGINE_HEALTH_STALLED: _ClassVar[EngineHealth]
    ENGINE_HEALTH_DOWN: _ClassVar[EngineHealth]

class ItemState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ITEM_STATE_UNSPECIFIED: _ClassVar[ItemState]
    ITEM_STATE_RECEIVED: _ClassVar[ItemState]
    ITEM_STATE_RUNNING: _ClassVar[ItemState]
    ITEM_STATE_FIRST_TOKEN: _ClassVar[ItemState]
    ITEM_STATE_PAUSED: _ClassVar[ItemState]
    ITEM_STATE_FINISHED: _ClassVar[ItemState]
ENGINE_MODE_UNSPECIFIED: EngineMode
ENGINE_MODE_STATIC: EngineMode
ENGINE_MODE_CONTINUOUS: EngineMode
ENGINE_HEALTH_UNSPECIFIED: EngineHealth
ENGINE_HEALTH_STARTING: EngineHealth
ENGINE_HEALTH_SERVING: EngineHealth
ENGINE_HEALTH_STALLED: EngineHealth
ENGINE_HEALTH_DOWN: EngineHealth
ITEM_STATE_UNSPECIFIED: ItemState
ITEM_STATE_RECEIVED: ItemState
ITEM_STATE_RUNNING: ItemState
ITEM_STATE_FIRST_TOKEN: ItemState
ITEM_STATE_PAUSED: ItemState
ITEM_STATE_FINISHED: ItemState

class ConnectRequest(_message.Message):
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
    hello: Hello
    descriptor: NodeDescriptor
    updates: _containers.RepeatedCompositeFieldContainer[ItemUpdate]
    deltas: _types_pb2.TokenDeltas
    results: _containers.RepeatedCompositeFieldContainer[ItemResult]
    credits: _containers.RepeatedCompositeFieldContainer[Credit]
    report: NodeReport
    command_results: _containers.RepeatedCompositeFieldContainer[CommandResult]
    drain: Drain
    pong: Pong
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., descriptor: _Optional[_Union[NodeDescriptor, _Mapping]] = ..., updates: _Optional[_Iterable[_Union[ItemUpdate, _Mapping]]] = ..., deltas: _Optional[_Union[_types_pb2.TokenDeltas, _Mapping]] = ..., results: _Optional[_Iterable[_Union[ItemResult, _Mapping]]] = ..., credits: _Optional[_Iterable[_Union[Credit, _Mapping]]] = ..., report: _Optional[_Union[NodeReport, _Mapping]] = ..., command_results: _Optional[_Iterable[_Union[CommandResult, _Mapping]]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "results_acked", "batches", "cancels", "commands", "drain", "ping", "goodbye")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RESULTS_ACKED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    results_acked: int
    batches: _containers.RepeatedCompositeFieldContainer[DispatchBatch]
    cancels: _containers.RepeatedCompositeFieldContainer[Cancel]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    drain: Drain
    ping: Ping
    goodbye: Goodbye
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., results_acked: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[DispatchBatch, _Mapping]]] = ..., cancels: _Optional[_Iterable[_Union[Cancel, _Mapping]]] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node_id", "boot_id", "agent_version", "protocol_version", "features", "descriptor", "report", "cluster_id", "highest_term", "running_items")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TERM_FIELD_NUMBER: _ClassVar[int]
    RUNNING_ITEMS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    boot_id: str
    agent_version: str
    protocol_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    descriptor: NodeDescriptor
    report: NodeReport
    cluster_id: str
    highest_term: int
    running_items: _containers.RepeatedCompositeFieldContainer[RunningItem]
    def __init__(self, node_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., agent_version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., descriptor: _Optional[_Union[NodeDescriptor, _Mapping]] = ..., report: _Optional[_Union[NodeReport, _Mapping]] = ..., cluster_id: _Optional[str] = ..., highest_term: _Optional[int] = ..., running_items: _Optional[_Iterable[_Union[RunningItem, _Mapping]]] = ...) -> None: ...

class RunningItem(_message.Message):
    __slots__ = ("dispatch_id", "attempt", "tenant", "request_id", "output_id", "offsets", "engine_id", "model", "state", "cookie")
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    dispatch_id: int
    attempt: int
    tenant: str
    request_id: str
    output_id: int
    offsets: _containers.RepeatedCompositeFieldContainer[_types_pb2.StreamOffset]
    engine_id: str
    model: str
    state: ItemState
    cookie: bytes
    def __init__(self, dispatch_id: _Optional[int] = ..., attempt: _Optional[int] = ..., tenant: _Optional[str] = ..., request_id: _Optional[str] = ..., output_id: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[_types_pb2.StreamOffset, _Mapping]]] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[_Union[ItemState, str]] = ..., cookie: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session_epoch", "cluster_id", "term", "scheduler_version", "protocol_version", "features", "abandon_dispatch_ids", "resume_points", "heartbeat_interval", "session_timeout", "resume_window", "report_interval", "coalesce", "max_message_bytes", "server_time")
    SESSION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ABANDON_DISPATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_POINTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RESUME_WINDOW_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    COALESCE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    session_epoch: int
    cluster_id: str
    term: int
    scheduler_version: str
    protocol_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    abandon_dispatch_ids: _containers.RepeatedScalarFieldContainer[int]
    resume_points: _containers.RepeatedCompositeFieldContainer[ResumePoint]
    heartbeat_interval: _duration_pb2.Duration
    session_timeout: _duration_pb2.Duration
    resume_window: _duration_pb2.Duration
    report_interval: _duration_pb2.Duration
    coalesce: _duration_pb2.Duration
    max_message_bytes: int
    server_time: _timestamp_pb2.Timestamp
    def __init__(self, session_epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ..., term: _Optional[int] = ..., scheduler_version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., abandon_dispatch_ids: _Optional[_Iterable[int]] = ..., resume_points: _Optional[_Iterable[_Union[ResumePoint, _Mapping]]] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., session_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resume_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., report_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., coalesce: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_message_bytes: _Optional[int] = ..., server_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResumePoint(_message.Message):
    __slots__ = ("dispatch_id", "offsets")
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    dispatch_id: int
    offsets: _containers.RepeatedCompositeFieldContainer[_types_pb2.StreamOffset]
    def __init__(self, dispatch_id: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[_types_pb2.StreamOffset, _Mapping]]] = ...) -> None: ...

class NodeDescriptor(_message.Message):
    __slots__ = ("hostname", "address", "zone", "pool", "role", "labels", "task_types", "gpus", "engines", "price_per_hour")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    address: str
    zone: str
    pool: str
    role: str
    labels: _containers.ScalarMap[str, str]
    task_types: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedCompositeFieldContainer[GpuDescriptor]
    engines: _containers.RepeatedCompositeFieldContainer[EngineDescriptor]
    price_per_hour: _types_pb2.Money
    def __init__(self, hostname: _Optional[str] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., pool: _Optional[str] = ..., role: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., task_types: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[_Union[GpuDescriptor, _Mapping]]] = ..., engines: _Optional[_Iterable[_Union[EngineDescriptor, _Mapping]]] = ..., price_per_hour: _Optional[_Union[_types_pb2.Money, _Mapping]] = ...) -> None: ...

class GpuDescriptor(_message.Message):
    __slots__ = ("index", "uuid", "model", "memory_bytes", "driver_version", "mig_uuid")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    MIG_UUID_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    model: str
    memory_bytes: int
    driver_version: str
    mig_uuid: str
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., model: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., driver_version: _Optional[str] = ..., mig_uuid: _Optional[str] = ...) -> None: ...

class EngineDescriptor(_message.Message):
    __slots__ = ("engine_id", "kind", "version", "address", "gpu_indexes", "mode", "slots", "slots_assumed", "max_batch_size", "look_ahead", "kv_capacity_tokens", "batch_key", "models")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GPU_INDEXES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOOK_AHEAD_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BATCH_KEY_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    kind: str
    version: str
    address: str
    gpu_indexes: _containers.RepeatedScalarFieldContainer[int]
    mode: EngineMode
    slots: int
    slots_assumed: bool
    max_batch_size: int
    look_ahead: int
    kv_capacity_tokens: int
    batch_key: BatchKeyRules
    models: _containers.RepeatedCompositeFieldContainer[ModelDescriptor]
    def __init__(self, engine_id: _Optional[str] = ..., kind: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., gpu_indexes: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[EngineMode, str]] = ..., slots: _Optional[int] = ..., slots_assumed: bool = ..., max_batch_size: _Optional[int] = ..., look_ahead: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ..., batch_key: _Optional[_Union[BatchKeyRules, _Mapping]] = ..., models: _Optional[_Iterable[_Union[ModelDescriptor, _Mapping]]] = ...) -> None: ...

class BatchKeyRules(_message.Message):
    __slots__ = ("equal", "max_length_ratio", "max_tokens")
    EQUAL_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    equal: _containers.RepeatedScalarFieldContainer[str]
    max_length_ratio: float
    max_tokens: int
    def __init__(self, equal: _Optional[_Iterable[str]] = ..., max_length_ratio: _Optional[float] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class ModelDescriptor(_message.Message):
    __slots__ = ("model", "engine_model", "base_model", "context_length", "max_concurrency", "streaming", "resumable", "task_types", "features")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    model: str
    engine_model: str
    base_model: str
    context_length: int
    max_concurrency: int
    streaming: bool
    resumable: bool
    task_types: _containers.RepeatedScalarFieldContainer[str]
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., engine_model: _Optional[str] = ..., base_model: _Optional[str] = ..., context_length: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., streaming: bool = ..., resumable: bool = ..., task_types: _Optional[_Iterable[str]] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeReport(_message.Message):
    __slots__ = ("sample_time", "items_received", "engines", "gpus", "cpu_utilization", "memory_utilization", "application_utilization", "named_metrics")
    class NamedMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SAMPLE_TIME_FIELD_NUMBER: _ClassVar[int]
    ITEMS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    CPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    NAMED_METRICS_FIELD_NUMBER: _ClassVar[int]
    sample_time: _timestamp_pb2.Timestamp
    items_received: int
    engines: _containers.RepeatedCompositeFieldContainer[EngineLoad]
    gpus: _containers.RepeatedCompositeFieldContainer[GpuLoad]
    cpu_utilization: float
    memory_utilization: float
    application_utilization: float
    named_metrics: _containers.ScalarMap[str, float]
    def __init__(self, sample_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., items_received: _Optional[int] = ..., engines: _Optional[_Iterable[_Union[EngineLoad, _Mapping]]] = ..., gpus: _Optional[_Iterable[_Union[GpuLoad, _Mapping]]] = ..., cpu_utilization: _Optional[float] = ..., memory_utilization: _Optional[float] = ..., application_utilization: _Optional[float] = ..., named_metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class EngineLoad(_message.Message):
    __slots__ = ("engine_id", "health", "message", "running_dispatch_ids", "waiting_dispatch_ids", "running", "waiting", "kv_utilization", "prefix_cache_hit_ratio", "prefill_backlog_tokens", "prompt_tokens_per_second", "output_tokens_per_second", "preemptions", "start_estimate", "models")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_DISPATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_DISPATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    PREFIX_CACHE_HIT_RATIO_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BACKLOG_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    START_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    health: EngineHealth
    message: str
    running_dispatch_ids: _containers.RepeatedScalarFieldContainer[int]
    waiting_dispatch_ids: _containers.RepeatedScalarFieldContainer[int]
    running: int
    waiting: int
    kv_utilization: float
    prefix_cache_hit_ratio: float
    prefill_backlog_tokens: int
    prompt_tokens_per_second: float
    output_tokens_per_second: float
    preemptions: int
    start_estimate: _duration_pb2.Duration
    models: _containers.RepeatedCompositeFieldContainer[ModelLoad]
    def __init__(self, engine_id: _Optional[str] = ..., health: _Optional[_Union[EngineHealth, str]] = ..., message: _Optional[str] = ..., running_dispatch_ids: _Optional[_Iterable[int]] = ..., waiting_dispatch_ids: _Optional[_Iterable[int]] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_utilization: _Optional[float] = ..., prefix_cache_hit_ratio: _Optional[float] = ..., prefill_backlog_tokens: _Optional[int] = ..., prompt_tokens_per_second: _Optional[float] = ..., output_tokens_per_second: _Optional[float] = ..., preemptions: _Optional[int] = ..., start_estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., models: _Optional[_Iterable[_Union[ModelLoad, _Mapping]]] = ...) -> None: ...

class ModelLoad(_message.Message):
    __slots__ = ("model", "state", "load_estimate", "profile")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOAD_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    model: str
    state: _types_pb2.ModelState
    load_estimate: _duration_pb2.Duration
    profile: ServiceProfile
    def __init__(self, model: _Optional[str] = ..., state: _Optional[_Union[_types_pb2.ModelState, str]] = ..., load_estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., profile: _Optional[_Union[ServiceProfile, _Mapping]] = ...) -> None: ...

class ServiceProfile(_message.Message):
    __slots__ = ("prefill_tokens_per_second", "points")
    PREFILL_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    prefill_tokens_per_second: float
    points: _containers.RepeatedCompositeFieldContainer[ServicePoint]
    def __init__(self, prefill_tokens_per_second: _Optional[float] = ..., points: _Optional[_Iterable[_Union[ServicePoint, _Mapping]]] = ...) -> None: ...

class ServicePoint(_message.Message):
    __slots__ = ("concurrency", "time", "samples")
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    time: _duration_pb2.Duration
    samples: int
    def __init__(self, concurrency: _Optional[int] = ..., time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., samples: _Optional[int] = ...) -> None: ...

class GpuLoad(_message.Message):
    __slots__ = ("index", "uuid", "utilization", "memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts", "throttle_reasons", "uncorrected_ecc_errors", "last_xid")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_REASONS_FIELD_NUMBER: _ClassVar[int]
    UNCORRECTED_ECC_ERRORS_FIELD_NUMBER: _ClassVar[int]
    LAST_XID_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    utilization: float
    memory_used_bytes: int
    memory_total_bytes: int
    temperature_celsius: float
    power_watts: float
    throttle_reasons: int
    uncorrected_ecc_errors: int
    last_xid: int
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., utilization: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., temperature_celsius: _Optional[float] = ..., power_watts: _Optional[float] = ..., throttle_reasons: _Optional[int] = ..., uncorrected_ecc_errors: _Optional[int] = ..., last_xid: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("engine_id", "total_inputs", "total_tokens")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_INPUTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    total_inputs: int
    total_tokens: int
    def __init__(self, engine_id: _Optional[str] = ..., total_inputs: _Optional[int] = ..., total_tokens: _Optional[int] = ...) -> None: ...

class Charge(_message.Message):
    __slots__ = ("inputs", "tokens")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    inputs: int
    tokens: int
    def __init__(self, inputs: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class DispatchBatch(_message.Message):
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
    items: _containers.RepeatedCompositeFieldContainer[DispatchItem]
    trace: _types_pb2.TraceContext
    atomic: bool
    def __init__(self, batch_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., items: _Optional[_Iterable[_Union[DispatchItem, _Mapping]]] = ..., trace: _Optional[_Union[_types_pb2.TraceContext, _Mapping]] = ..., atomic: bool = ...) -> None: ...

class DispatchItem(_message.Message):
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
    request: _inference_pb2.InferenceRequest
    request_id: str
    tenant: str
    request_class: _types_pb2.RequestClass
    priority: int
    max_tokens: int
    remaining: _duration_pb2.Duration
    charge: Charge
    trace: _types_pb2.TraceContext
    output_id: int
    continuation: Continuation
    stream: bool
    cookie: bytes
    def __init__(self, dispatch_id: _Optional[int] = ..., attempt: _Optional[int] = ..., request: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ..., request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., request_class: _Optional[_Union[_types_pb2.RequestClass, str]] = ..., priority: _Optional[int] = ..., max_tokens: _Optional[int] = ..., remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., charge: _Optional[_Union[Charge, _Mapping]] = ..., trace: _Optional[_Union[_types_pb2.TraceContext, _Mapping]] = ..., output_id: _Optional[int] = ..., continuation: _Optional[_Union[Continuation, _Mapping]] = ..., stream: bool = ..., cookie: _Optional[bytes] = ...) -> None: ...

class Continuation(_message.Message):
    __slots__ = ("text", "reasoning", "token_ids", "output_tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    reasoning: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    output_tokens: int
    def __init__(self, text: _Optional[str] = ..., reasoning: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., output_tokens: _Optional[int] = ...) -> None: ...

class ItemUpdate(_message.Message):
    __slots__ = ("dispatch_id", "state", "elapsed")
    DISPATCH_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    dispatch_id: int
    state: ItemState
    elapsed: _duration_pb2.Duration
    def __init__(self, dispatch_id: _Optional[int] = ..., state: _Optional[_Union[ItemState, str]] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ItemResult(_message.Message):
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
    outputs: _containers.RepeatedCompositeFieldContainer[_inference_pb2.Output]
    usage: _types_pb2.Usage
    timings: _types_pb2.EngineTimings
    refused: bool
    def __init__(self, dispatch_id: _Optional[int] = ..., attempt: _Optional[int] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[_inference_pb2.Output, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., timings: _Optional[_Union[_types_pb2.EngineTimings, _Mapping]] = ..., refused: bool = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("dispatch_ids", "reason")
    DISPATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    dispatch_ids: _containers.RepeatedScalarFieldContainer[int]
    reason: _types_pb2.ErrorReason
    def __init__(self, dispatch_ids: _Optional[_Iterable[int]] = ..., reason: _Optional[_Union[_types_pb2.ErrorReason, str]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("command_id", "timeout", "load_model", "unload_model", "set_slots", "set_log_level")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LOAD_MODEL_FIELD_NUMBER: _ClassVar[int]
    UNLOAD_MODEL_FIELD_NUMBER: _ClassVar[int]
    SET_SLOTS_FIELD_NUMBER: _ClassVar[int]
    SET_LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    timeout: _duration_pb2.Duration
    load_model: LoadModel
    unload_model: UnloadModel
    set_slots: SetSlots
    set_log_level: SetLogLevel
    def __init__(self, command_id: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., load_model: _Optional[_Union[LoadModel, _Mapping]] = ..., unload_model: _Optional[_Union[UnloadModel, _Mapping]] = ..., set_slots: _Optional[_Union[SetSlots, _Mapping]] = ..., set_log_level: _Optional[_Union[SetLogLevel, _Mapping]] = ...) -> None: ...

class LoadModel(_message.Message):
    __slots__ = ("engine_id", "model", "options_json")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    model: str
    options_json: str
    def __init__(self, engine_id: _Optional[str] = ..., model: _Optional[str] = ..., options_json: _Optional[str] = ...) -> None: ...

class UnloadModel(_message.Message):
    __slots__ = ("engine_id", "model")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    model: str
    def __init__(self, engine_id: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class SetSlots(_message.Message):
    __slots__ = ("engine_id", "slots")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    slots: int
    def __init__(self, engine_id: _Optional[str] = ..., slots: _Optional[int] = ...) -> None: ...

class SetLogLevel(_message.Message):
    __slots__ = ("level", "logger")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    level: str
    logger: str
    def __init__(self, level: _Optional[str] = ..., logger: _Optional[str] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("command_id", "error")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    error: _types_pb2.Error
    def __init__(self, command_id: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("grace", "reason", "terminate", "lifted")
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERMINATE_FIELD_NUMBER: _ClassVar[int]
    LIFTED_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    reason: str
    terminate: bool
    lifted: bool
    def __init__(self, grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., terminate: bool = ..., lifted: bool = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce", "receive_time")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    receive_time: _timestamp_pb2.Timestamp
    def __init__(self, nonce: _Optional[int] = ..., receive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("error", "reconnect_after", "redirect")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_AFTER_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_FIELD_NUMBER: _ClassVar[int]
    error: _types_pb2.Error
    reconnect_after: _duration_pb2.Duration
    redirect: str
    def __init__(self, error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., reconnect_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., redirect: _Optional[str] = ...) -> None: ...
