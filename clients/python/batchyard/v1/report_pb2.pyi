import datetime

from batchyard.v1 import node_service_pb2 as _node_service_pb2
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

class DiagnosisSeverity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIAGNOSIS_SEVERITY_UNSPECIFIED: _ClassVar[DiagnosisSeverity]
    DIAGNOSIS_SEVERITY_INFO: _ClassVar[DiagnosisSeverity]
    DIAGNOSIS_SEVERITY_WARNING: _ClassVar[DiagnosisSeverity]
    DIAGNOSIS_SEVERITY_CRITICAL: _ClassVar[DiagnosisSeverity]

class NodeAvailability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_AVAILABILITY_UNSPECIFIED: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_ACTIVE: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_CORDONED: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_DRAINING: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_DRAINED: _ClassVar[NodeAvailability]

class NodeHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_HEALTH_UNSPECIFIED: _ClassVar[NodeHealth]
    NODE_HEALTH_STARTING: _ClassVar[NodeHealth]
    NODE_HEALTH_HEALTHY: _ClassVar[NodeHealth]
    NODE_HEALTH_SUSPECT: _ClassVar[NodeHealth]
    NODE_HEALTH_PROBATION: _ClassVar[NodeHealth]
    NODE_HEALTH_EJECTED: _ClassVar[NodeHealth]
    NODE_HEALTH_LOST: _ClassVar[NodeHealth]

class RequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATE_UNSPECIFIED: _ClassVar[RequestState]
    REQUEST_STATE_QUEUED: _ClassVar[RequestState]
    REQUEST_STATE_DISPATCHED: _ClassVar[RequestState]
    REQUEST_STATE_RUNNING: _ClassVar[RequestState]
    REQUEST_STATE_FINISHED: _ClassVar[RequestState]
DIAGNOSIS_SEVERITY_UNSPECIFIED: DiagnosisSeverity
DIAGNOSIS_SEVERITY_INFO: DiagnosisSeverity
DIAGNOSIS_SEVERITY_WARNING: DiagnosisSeverity
DIAGNOSIS_SEVERITY_CRITICAL: DiagnosisSeverity
NODE_AVAILABILITY_UNSPECIFIED: NodeAvailability
NODE_AVAILABILITY_ACTIVE: NodeAvailability
NODE_AVAILABILITY_CORDONED: NodeAvailability
NODE_AVAILABILITY_DRAINING: NodeAvailability
NODE_AVAILABILITY_DRAINED: NodeAvailability
NODE_HEALTH_UNSPECIFIED: NodeHealth
NODE_HEALTH_STARTING: NodeHealth
NODE_HEALTH_HEALTHY: NodeHealth
NODE_HEALTH_SUSPECT: NodeHealth
NODE_HEALTH_PROBATION: NodeHealth
NODE_HEALTH_EJECTED: NodeHealth
NODE_HEALTH_LOST: NodeHealth
REQUEST_STATE_UNSPECIFIED: RequestState
REQUEST_STATE_QUEUED: RequestState
REQUEST_STATE_DISPATCHED: RequestState
REQUEST_STATE_RUNNING: RequestState
REQUEST_STATE_FINISHED: RequestState

class Report(_message.Message):
    __slots__ = ("report_name", "generate_time", "window", "queue_size", "oldest_wait", "nodes", "events", "totals", "window_totals", "diagnosis", "queues", "pools", "costs", "slowest", "scheduler_version", "uptime", "backlog", "rejects", "timeline", "tenants")
    class RejectsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REPORT_NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATE_TIME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOTALS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    REJECTS_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    report_name: str
    generate_time: _timestamp_pb2.Timestamp
    window: _duration_pb2.Duration
    queue_size: int
    oldest_wait: _duration_pb2.Duration
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSummary]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    totals: Totals
    window_totals: Totals
    diagnosis: _containers.RepeatedCompositeFieldContainer[Diagnosis]
    queues: _containers.RepeatedCompositeFieldContainer[QueueStats]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    costs: _containers.RepeatedCompositeFieldContainer[CostLine]
    slowest: _containers.RepeatedCompositeFieldContainer[RequestSummary]
    scheduler_version: str
    uptime: _duration_pb2.Duration
    backlog: int
    rejects: _containers.ScalarMap[str, int]
    timeline: _containers.RepeatedCompositeFieldContainer[TimelinePoint]
    tenants: _containers.RepeatedCompositeFieldContainer[TenantStats]
    def __init__(self, report_name: _Optional[str] = ..., generate_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queue_size: _Optional[int] = ..., oldest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeSummary, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., window_totals: _Optional[_Union[Totals, _Mapping]] = ..., diagnosis: _Optional[_Iterable[_Union[Diagnosis, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[QueueStats, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., costs: _Optional[_Iterable[_Union[CostLine, _Mapping]]] = ..., slowest: _Optional[_Iterable[_Union[RequestSummary, _Mapping]]] = ..., scheduler_version: _Optional[str] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., backlog: _Optional[int] = ..., rejects: _Optional[_Mapping[str, int]] = ..., timeline: _Optional[_Iterable[_Union[TimelinePoint, _Mapping]]] = ..., tenants: _Optional[_Iterable[_Union[TenantStats, _Mapping]]] = ...) -> None: ...

class TimelinePoint(_message.Message):
    __slots__ = ("time", "waiting", "oldest_wait", "running", "slots")
    TIME_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    waiting: int
    oldest_wait: _duration_pb2.Duration
    running: int
    slots: int
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waiting: _Optional[int] = ..., oldest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., running: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class TenantStats(_message.Message):
    __slots__ = ("tenant", "dispatched", "wait_p50", "wait_p99")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    WAIT_P50_FIELD_NUMBER: _ClassVar[int]
    WAIT_P99_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    dispatched: int
    wait_p50: _duration_pb2.Duration
    wait_p99: _duration_pb2.Duration
    def __init__(self, tenant: _Optional[str] = ..., dispatched: _Optional[int] = ..., wait_p50: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., wait_p99: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("received", "succeeded", "failed", "rejected", "cancelled", "expired", "degraded", "failovers", "preemptions", "batches", "input_tokens", "output_tokens", "wasted_output_tokens", "late_results")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    FAILOVERS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WASTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LATE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    received: int
    succeeded: int
    failed: int
    rejected: int
    cancelled: int
    expired: int
    degraded: int
    failovers: int
    preemptions: int
    batches: int
    input_tokens: int
    output_tokens: int
    wasted_output_tokens: int
    late_results: int
    def __init__(self, received: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., rejected: _Optional[int] = ..., cancelled: _Optional[int] = ..., expired: _Optional[int] = ..., degraded: _Optional[int] = ..., failovers: _Optional[int] = ..., preemptions: _Optional[int] = ..., batches: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., wasted_output_tokens: _Optional[int] = ..., late_results: _Optional[int] = ...) -> None: ...

class Diagnosis(_message.Message):
    __slots__ = ("code", "severity", "text", "reason", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: str
    severity: DiagnosisSeverity
    text: str
    reason: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[str] = ..., severity: _Optional[_Union[DiagnosisSeverity, str]] = ..., text: _Optional[str] = ..., reason: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("pool", "model", "request_class", "priority", "tenant", "depth", "oldest_wait", "arrivals_per_second", "departures_per_second", "wait_p50", "wait_p99")
    POOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CLASS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    DEPARTURES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    WAIT_P50_FIELD_NUMBER: _ClassVar[int]
    WAIT_P99_FIELD_NUMBER: _ClassVar[int]
    pool: str
    model: str
    request_class: _types_pb2.RequestClass
    priority: int
    tenant: str
    depth: int
    oldest_wait: _duration_pb2.Duration
    arrivals_per_second: float
    departures_per_second: float
    wait_p50: _duration_pb2.Duration
    wait_p99: _duration_pb2.Duration
    def __init__(self, pool: _Optional[str] = ..., model: _Optional[str] = ..., request_class: _Optional[_Union[_types_pb2.RequestClass, str]] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., depth: _Optional[int] = ..., oldest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., arrivals_per_second: _Optional[float] = ..., departures_per_second: _Optional[float] = ..., wait_p50: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., wait_p99: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("pool", "models", "paused", "slots", "running", "floor_every", "start_bound", "scale", "batch_fill")
    POOL_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FLOOR_EVERY_FIELD_NUMBER: _ClassVar[int]
    START_BOUND_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FILL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    models: _containers.RepeatedScalarFieldContainer[str]
    paused: bool
    slots: int
    running: int
    floor_every: int
    start_bound: int
    scale: ScaleTarget
    batch_fill: float
    def __init__(self, pool: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., paused: bool = ..., slots: _Optional[int] = ..., running: _Optional[int] = ..., floor_every: _Optional[int] = ..., start_bound: _Optional[int] = ..., scale: _Optional[_Union[ScaleTarget, _Mapping]] = ..., batch_fill: _Optional[float] = ...) -> None: ...

class ScaleTarget(_message.Message):
    __slots__ = ("ready", "starting", "desired", "min", "max", "pressure", "reason", "decide_time", "frozen", "frozen_until")
    READY_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    PRESSURE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    FROZEN_UNTIL_FIELD_NUMBER: _ClassVar[int]
    ready: int
    starting: int
    desired: int
    min: int
    max: int
    pressure: float
    reason: str
    decide_time: _timestamp_pb2.Timestamp
    frozen: bool
    frozen_until: _timestamp_pb2.Timestamp
    def __init__(self, ready: _Optional[int] = ..., starting: _Optional[int] = ..., desired: _Optional[int] = ..., min: _Optional[int] = ..., max: _Optional[int] = ..., pressure: _Optional[float] = ..., reason: _Optional[str] = ..., decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., frozen: bool = ..., frozen_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CostLine(_message.Message):
    __slots__ = ("tenant", "model", "task_type", "requests", "slot_time", "node_hours", "output_tokens", "cost")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SLOT_TIME_FIELD_NUMBER: _ClassVar[int]
    NODE_HOURS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    model: str
    task_type: str
    requests: int
    slot_time: _duration_pb2.Duration
    node_hours: float
    output_tokens: int
    cost: _types_pb2.Money
    def __init__(self, tenant: _Optional[str] = ..., model: _Optional[str] = ..., task_type: _Optional[str] = ..., requests: _Optional[int] = ..., slot_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., node_hours: _Optional[float] = ..., output_tokens: _Optional[int] = ..., cost: _Optional[_Union[_types_pb2.Money, _Mapping]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("node_id", "availability", "health", "state_reason", "descriptor", "report", "summary", "ledgers", "boot_id", "session_epoch", "agent_version", "connect_time", "last_seen_time", "round_trip", "clock_offset_us", "drain")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_US_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    availability: NodeAvailability
    health: NodeHealth
    state_reason: str
    descriptor: _node_service_pb2.NodeDescriptor
    report: _node_service_pb2.NodeReport
    summary: NodeSummary
    ledgers: _containers.RepeatedCompositeFieldContainer[EngineLedger]
    boot_id: str
    session_epoch: int
    agent_version: str
    connect_time: _timestamp_pb2.Timestamp
    last_seen_time: _timestamp_pb2.Timestamp
    round_trip: _duration_pb2.Duration
    clock_offset_us: int
    drain: DrainProgress
    def __init__(self, node_id: _Optional[str] = ..., availability: _Optional[_Union[NodeAvailability, str]] = ..., health: _Optional[_Union[NodeHealth, str]] = ..., state_reason: _Optional[str] = ..., descriptor: _Optional[_Union[_node_service_pb2.NodeDescriptor, _Mapping]] = ..., report: _Optional[_Union[_node_service_pb2.NodeReport, _Mapping]] = ..., summary: _Optional[_Union[NodeSummary, _Mapping]] = ..., ledgers: _Optional[_Iterable[_Union[EngineLedger, _Mapping]]] = ..., boot_id: _Optional[str] = ..., session_epoch: _Optional[int] = ..., agent_version: _Optional[str] = ..., connect_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seen_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., round_trip: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., clock_offset_us: _Optional[int] = ..., drain: _Optional[_Union[DrainProgress, _Mapping]] = ...) -> None: ...

class EngineLedger(_message.Message):
    __slots__ = ("engine_id", "in_flight", "charged_inputs", "charged_tokens", "credit", "healed")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CHARGED_INPUTS_FIELD_NUMBER: _ClassVar[int]
    CHARGED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    HEALED_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    in_flight: int
    charged_inputs: int
    charged_tokens: int
    credit: _node_service_pb2.Credit
    healed: int
    def __init__(self, engine_id: _Optional[str] = ..., in_flight: _Optional[int] = ..., charged_inputs: _Optional[int] = ..., charged_tokens: _Optional[int] = ..., credit: _Optional[_Union[_node_service_pb2.Credit, _Mapping]] = ..., healed: _Optional[int] = ...) -> None: ...

class DrainProgress(_message.Message):
    __slots__ = ("start_time", "end_time", "remaining", "finished", "moved", "lost", "finished_request_ids", "moved_request_ids", "lost_request_ids")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FINISHED_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    MOVED_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    LOST_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    remaining: int
    finished: int
    moved: int
    lost: int
    finished_request_ids: _containers.RepeatedScalarFieldContainer[str]
    moved_request_ids: _containers.RepeatedScalarFieldContainer[str]
    lost_request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., remaining: _Optional[int] = ..., finished: _Optional[int] = ..., moved: _Optional[int] = ..., lost: _Optional[int] = ..., finished_request_ids: _Optional[_Iterable[str]] = ..., moved_request_ids: _Optional[_Iterable[str]] = ..., lost_request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeSummary(_message.Message):
    __slots__ = ("node_id", "models", "availability", "health", "running", "slots", "slots_assumed", "max_batch_size", "avg_latency", "failure_rate", "can_accept", "cannot_accept_reason", "total_finished", "total_failed", "utilization", "price_per_hour")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    AVG_LATENCY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_RATE_FIELD_NUMBER: _ClassVar[int]
    CAN_ACCEPT_FIELD_NUMBER: _ClassVar[int]
    CANNOT_ACCEPT_REASON_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FINISHED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FAILED_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    models: _containers.RepeatedScalarFieldContainer[str]
    availability: NodeAvailability
    health: NodeHealth
    running: int
    slots: int
    slots_assumed: bool
    max_batch_size: int
    avg_latency: _duration_pb2.Duration
    failure_rate: float
    can_accept: bool
    cannot_accept_reason: str
    total_finished: int
    total_failed: int
    utilization: float
    price_per_hour: _types_pb2.Money
    def __init__(self, node_id: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., availability: _Optional[_Union[NodeAvailability, str]] = ..., health: _Optional[_Union[NodeHealth, str]] = ..., running: _Optional[int] = ..., slots: _Optional[int] = ..., slots_assumed: bool = ..., max_batch_size: _Optional[int] = ..., avg_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., failure_rate: _Optional[float] = ..., can_accept: bool = ..., cannot_accept_reason: _Optional[str] = ..., total_finished: _Optional[int] = ..., total_failed: _Optional[int] = ..., utilization: _Optional[float] = ..., price_per_hour: _Optional[_Union[_types_pb2.Money, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("event_id", "create_time", "event", "message", "request_id", "batch_id", "node_id", "model", "pool", "tenant", "items", "attributes", "trace_id", "principal", "reason")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    create_time: _timestamp_pb2.Timestamp
    event: str
    message: str
    request_id: str
    batch_id: str
    node_id: str
    model: str
    pool: str
    tenant: str
    items: _containers.RepeatedCompositeFieldContainer[EventItem]
    attributes: _containers.ScalarMap[str, str]
    trace_id: str
    principal: str
    reason: str
    def __init__(self, event_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[str] = ..., message: _Optional[str] = ..., request_id: _Optional[str] = ..., batch_id: _Optional[str] = ..., node_id: _Optional[str] = ..., model: _Optional[str] = ..., pool: _Optional[str] = ..., tenant: _Optional[str] = ..., items: _Optional[_Iterable[_Union[EventItem, _Mapping]]] = ..., attributes: _Optional[_Mapping[str, str]] = ..., trace_id: _Optional[str] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class EventItem(_message.Message):
    __slots__ = ("request_id", "status", "error", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    status: _types_pb2.FinishReason
    error: _types_pb2.Error
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., status: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class RequestSummary(_message.Message):
    __slots__ = ("request_id", "tenant", "model", "task_type", "priority", "request_class", "state", "finish_reason", "age", "queue_duration", "live_dispatch_ids", "node_id", "attempts", "output_tokens", "degraded", "preemptions", "trace_id", "job_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CLASS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DURATION_FIELD_NUMBER: _ClassVar[int]
    LIVE_DISPATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    model: str
    task_type: str
    priority: int
    request_class: _types_pb2.RequestClass
    state: RequestState
    finish_reason: _types_pb2.FinishReason
    age: _duration_pb2.Duration
    queue_duration: _duration_pb2.Duration
    live_dispatch_ids: _containers.RepeatedScalarFieldContainer[int]
    node_id: str
    attempts: int
    output_tokens: int
    degraded: bool
    preemptions: int
    trace_id: str
    job_id: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., task_type: _Optional[str] = ..., priority: _Optional[int] = ..., request_class: _Optional[_Union[_types_pb2.RequestClass, str]] = ..., state: _Optional[_Union[RequestState, str]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queue_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., live_dispatch_ids: _Optional[_Iterable[int]] = ..., node_id: _Optional[str] = ..., attempts: _Optional[int] = ..., output_tokens: _Optional[int] = ..., degraded: bool = ..., preemptions: _Optional[int] = ..., trace_id: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...
