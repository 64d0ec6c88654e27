import datetime

from batchyard.v1 import report_pb2 as _report_pb2
from batchyard.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestFilter(_message.Message):
    __slots__ = ("request_ids", "tenant", "model", "node_id", "job_id", "min_priority", "max_priority", "states", "request_classes")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CLASSES_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    model: str
    node_id: str
    job_id: str
    min_priority: int
    max_priority: int
    states: _containers.RepeatedScalarFieldContainer[_report_pb2.RequestState]
    request_classes: _containers.RepeatedScalarFieldContainer[_types_pb2.RequestClass]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., node_id: _Optional[str] = ..., job_id: _Optional[str] = ..., min_priority: _Optional[int] = ..., max_priority: _Optional[int] = ..., states: _Optional[_Iterable[_Union[_report_pb2.RequestState, str]]] = ..., request_classes: _Optional[_Iterable[_Union[_types_pb2.RequestClass, str]]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("decide_time", "kind", "outcome", "reason", "candidates")
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    decide_time: _timestamp_pb2.Timestamp
    kind: str
    outcome: str
    reason: str
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("node_id", "engine_id", "filtered_by", "score", "chosen")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    FILTERED_BY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    engine_id: str
    filtered_by: str
    score: float
    chosen: bool
    def __init__(self, node_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., filtered_by: _Optional[str] = ..., score: _Optional[float] = ..., chosen: bool = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("etag", "yaml", "update_time", "updated_by")
    ETAG_FIELD_NUMBER: _ClassVar[int]
    YAML_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    etag: str
    yaml: str
    update_time: _timestamp_pb2.Timestamp
    updated_by: str
    def __init__(self, etag: _Optional[str] = ..., yaml: _Optional[str] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_by: _Optional[str] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ("window", "language", "omit_nodes", "omit_queues", "max_events")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    OMIT_NODES_FIELD_NUMBER: _ClassVar[int]
    OMIT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    window: _duration_pb2.Duration
    language: str
    omit_nodes: bool
    omit_queues: bool
    max_events: int
    def __init__(self, window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., language: _Optional[str] = ..., omit_nodes: bool = ..., omit_queues: bool = ..., max_events: _Optional[int] = ...) -> None: ...

class GetReportResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: _report_pb2.Report
    def __init__(self, report: _Optional[_Union[_report_pb2.Report, _Mapping]] = ...) -> None: ...

class WatchReportRequest(_message.Message):
    __slots__ = ("interval", "report")
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    interval: _duration_pb2.Duration
    report: GetReportRequest
    def __init__(self, interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., report: _Optional[_Union[GetReportRequest, _Mapping]] = ...) -> None: ...

class WatchReportResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: _report_pb2.Report
    def __init__(self, report: _Optional[_Union[_report_pb2.Report, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "availabilities", "healths", "pool")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITIES_FIELD_NUMBER: _ClassVar[int]
    HEALTHS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    availabilities: _containers.RepeatedScalarFieldContainer[_report_pb2.NodeAvailability]
    healths: _containers.RepeatedScalarFieldContainer[_report_pb2.NodeHealth]
    pool: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., availabilities: _Optional[_Iterable[_Union[_report_pb2.NodeAvailability, str]]] = ..., healths: _Optional[_Iterable[_Union[_report_pb2.NodeHealth, str]]] = ..., pool: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_report_pb2.Node]
    next_page_token: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[_report_pb2.Node, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class CordonNodeRequest(_message.Message):
    __slots__ = ("node_id", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CordonNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class UncordonNodeRequest(_message.Message):
    __slots__ = ("node_id", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UncordonNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "grace", "reason", "terminate")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERMINATE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    grace: _duration_pb2.Duration
    reason: str
    terminate: bool
    def __init__(self, node_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., terminate: bool = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("node_id", "engine_id", "model", "options_json", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    engine_id: str
    model: str
    options_json: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., options_json: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("node_id", "engine_id", "model", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    engine_id: str
    model: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., engine_id: _Optional[str] = ..., model: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: _report_pb2.Node
    def __init__(self, node: _Optional[_Union[_report_pb2.Node, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "pool", "model", "tenant")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    pool: str
    model: str
    tenant: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., pool: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[_report_pb2.QueueStats]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[_report_pb2.QueueStats, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PausePoolRequest(_message.Message):
    __slots__ = ("pool", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PausePoolResponse(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: _report_pb2.Pool
    def __init__(self, pool: _Optional[_Union[_report_pb2.Pool, _Mapping]] = ...) -> None: ...

class ResumePoolRequest(_message.Message):
    __slots__ = ("pool", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumePoolResponse(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: _report_pb2.Pool
    def __init__(self, pool: _Optional[_Union[_report_pb2.Pool, _Mapping]] = ...) -> None: ...

class FreezeAutoscaleRequest(_message.Message):
    __slots__ = ("pool", "duration", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    duration: _duration_pb2.Duration
    reason: str
    def __init__(self, pool: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class FreezeAutoscaleResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[_report_pb2.Pool]
    def __init__(self, pools: _Optional[_Iterable[_Union[_report_pb2.Pool, _Mapping]]] = ...) -> None: ...

class UnfreezeAutoscaleRequest(_message.Message):
    __slots__ = ("pool", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UnfreezeAutoscaleResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[_report_pb2.Pool]
    def __init__(self, pools: _Optional[_Iterable[_Union[_report_pb2.Pool, _Mapping]]] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: RequestFilter
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[_Union[RequestFilter, _Mapping]] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "next_page_token")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[_report_pb2.RequestSummary]
    next_page_token: str
    def __init__(self, requests: _Optional[_Iterable[_Union[_report_pb2.RequestSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetRequestRequest(_message.Message):
    __slots__ = ("request_id", "tenant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class GetRequestResponse(_message.Message):
    __slots__ = ("request", "attempts", "timings", "usage", "error")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request: _report_pb2.RequestSummary
    attempts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Attempt]
    timings: _types_pb2.Timings
    usage: _types_pb2.Usage
    error: _types_pb2.Error
    def __init__(self, request: _Optional[_Union[_report_pb2.RequestSummary, _Mapping]] = ..., attempts: _Optional[_Iterable[_Union[_types_pb2.Attempt, _Mapping]]] = ..., timings: _Optional[_Union[_types_pb2.Timings, _Mapping]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ...) -> None: ...

class CancelMatchingRequest(_message.Message):
    __slots__ = ("filter", "reason", "validate_only")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    filter: RequestFilter
    reason: str
    validate_only: bool
    def __init__(self, filter: _Optional[_Union[RequestFilter, _Mapping]] = ..., reason: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class CancelMatchingResponse(_message.Message):
    __slots__ = ("count", "request_ids")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    count: int
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, count: _Optional[int] = ..., request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainRequestRequest(_message.Message):
    __slots__ = ("request_id", "tenant", "language", "page_size", "page_token")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    language: str
    page_size: int
    page_token: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., language: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ExplainRequestResponse(_message.Message):
    __slots__ = ("request", "wait", "decisions", "incomplete", "next_page_token")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    request: _report_pb2.RequestSummary
    wait: WaitReason
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    incomplete: bool
    next_page_token: str
    def __init__(self, request: _Optional[_Union[_report_pb2.RequestSummary, _Mapping]] = ..., wait: _Optional[_Union[WaitReason, _Mapping]] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., incomplete: bool = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WaitReason(_message.Message):
    __slots__ = ("code", "text", "ahead", "ahead_reason", "estimated_start", "start_bound", "nodes")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    AHEAD_REASON_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_START_FIELD_NUMBER: _ClassVar[int]
    START_BOUND_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    ahead: int
    ahead_reason: str
    estimated_start: _duration_pb2.Duration
    start_bound: int
    nodes: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., ahead: _Optional[int] = ..., ahead_reason: _Optional[str] = ..., estimated_start: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., start_bound: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "events", "start_time", "request_id", "node_id")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    events: _containers.RepeatedScalarFieldContainer[str]
    start_time: _timestamp_pb2.Timestamp
    request_id: str
    node_id: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., events: _Optional[_Iterable[str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., request_id: _Optional[str] = ..., node_id: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_report_pb2.Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[_report_pb2.Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("events", "after_event_id")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    AFTER_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedScalarFieldContainer[str]
    after_event_id: str
    def __init__(self, events: _Optional[_Iterable[str]] = ..., after_event_id: _Optional[str] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events", "gap")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_report_pb2.Event]
    gap: bool
    def __init__(self, events: _Optional[_Iterable[_Union[_report_pb2.Event, _Mapping]]] = ..., gap: bool = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPolicyResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ...) -> None: ...

class UpdatePolicyRequest(_message.Message):
    __slots__ = ("policy", "validate_only", "reason")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    validate_only: bool
    reason: str
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ..., validate_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class UpdatePolicyResponse(_message.Message):
    __slots__ = ("policy", "warnings", "previous_yaml")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_YAML_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    warnings: _containers.RepeatedScalarFieldContainer[str]
    previous_yaml: str
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., previous_yaml: _Optional[str] = ...) -> None: ...

class SetLogLevelRequest(_message.Message):
    __slots__ = ("node_id", "level", "logger", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    level: str
    logger: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., level: _Optional[str] = ..., logger: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
