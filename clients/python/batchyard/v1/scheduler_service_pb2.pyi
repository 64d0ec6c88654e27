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

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_RECEIVING: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_PARTIALLY_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLING: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_EXPIRED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_RECEIVING: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_PARTIALLY_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLING: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_EXPIRED: JobState

class GenerateRequest(_message.Message):
    __slots__ = ("request", "detach_grace")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    request: _inference_pb2.InferenceRequest
    detach_grace: _duration_pb2.Duration
    def __init__(self, request: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ..., detach_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _inference_pb2.InferenceResult
    def __init__(self, result: _Optional[_Union[_inference_pb2.InferenceResult, _Mapping]] = ...) -> None: ...

class GenerateStreamRequest(_message.Message):
    __slots__ = ("request", "detach_grace", "attach")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    request: _inference_pb2.InferenceRequest
    detach_grace: _duration_pb2.Duration
    attach: AttachPoint
    def __init__(self, request: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ..., detach_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., attach: _Optional[_Union[AttachPoint, _Mapping]] = ...) -> None: ...

class GenerateStreamResponse(_message.Message):
    __slots__ = ("accepted", "started", "deltas", "result")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    started: Started
    deltas: _types_pb2.TokenDeltas
    result: _inference_pb2.InferenceResult
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., deltas: _Optional[_Union[_types_pb2.TokenDeltas, _Mapping]] = ..., result: _Optional[_Union[_inference_pb2.InferenceResult, _Mapping]] = ...) -> None: ...

class AttachPoint(_message.Message):
    __slots__ = ("output_id", "offsets")
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    output_id: int
    offsets: _containers.RepeatedCompositeFieldContainer[_types_pb2.StreamOffset]
    def __init__(self, output_id: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[_types_pb2.StreamOffset, _Mapping]]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("call_id", "request_id", "receive_time", "queue_position", "estimated_wait", "attached")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_WAIT_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request_id: str
    receive_time: _timestamp_pb2.Timestamp
    queue_position: int
    estimated_wait: _duration_pb2.Duration
    attached: bool
    def __init__(self, call_id: _Optional[int] = ..., request_id: _Optional[str] = ..., receive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue_position: _Optional[int] = ..., estimated_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., attached: bool = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("call_id", "attempt", "node_id", "model", "degraded", "output_id", "restarted")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ID_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    attempt: int
    node_id: str
    model: str
    degraded: bool
    output_id: int
    restarted: bool
    def __init__(self, call_id: _Optional[int] = ..., attempt: _Optional[int] = ..., node_id: _Optional[str] = ..., model: _Optional[str] = ..., degraded: bool = ..., output_id: _Optional[int] = ..., restarted: bool = ...) -> None: ...

class MultiplexRequest(_message.Message):
    __slots__ = ("open", "calls", "cancel_call_ids", "done")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    open: MultiplexOpen
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    cancel_call_ids: _containers.RepeatedScalarFieldContainer[int]
    done: bool
    def __init__(self, open: _Optional[_Union[MultiplexOpen, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., cancel_call_ids: _Optional[_Iterable[int]] = ..., done: bool = ...) -> None: ...

class MultiplexOpen(_message.Message):
    __slots__ = ("client_version", "features", "coalesce")
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    COALESCE_FIELD_NUMBER: _ClassVar[int]
    client_version: str
    features: _containers.RepeatedScalarFieldContainer[str]
    coalesce: _duration_pb2.Duration
    def __init__(self, client_version: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., coalesce: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("call_id", "request", "stream", "detach_grace", "attach")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: _inference_pb2.InferenceRequest
    stream: bool
    detach_grace: _duration_pb2.Duration
    attach: AttachPoint
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ..., stream: bool = ..., detach_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., attach: _Optional[_Union[AttachPoint, _Mapping]] = ...) -> None: ...

class MultiplexResponse(_message.Message):
    __slots__ = ("opened", "accepted", "started", "deltas", "results", "max_outstanding", "going_away")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    opened: MultiplexOpened
    accepted: _containers.RepeatedCompositeFieldContainer[Accepted]
    started: _containers.RepeatedCompositeFieldContainer[Started]
    deltas: _types_pb2.TokenDeltas
    results: _containers.RepeatedCompositeFieldContainer[CallResult]
    max_outstanding: int
    going_away: bool
    def __init__(self, opened: _Optional[_Union[MultiplexOpened, _Mapping]] = ..., accepted: _Optional[_Iterable[_Union[Accepted, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[Started, _Mapping]]] = ..., deltas: _Optional[_Union[_types_pb2.TokenDeltas, _Mapping]] = ..., results: _Optional[_Iterable[_Union[CallResult, _Mapping]]] = ..., max_outstanding: _Optional[int] = ..., going_away: bool = ...) -> None: ...

class MultiplexOpened(_message.Message):
    __slots__ = ("stream_id", "features", "limits")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    features: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    def __init__(self, stream_id: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class CallResult(_message.Message):
    __slots__ = ("call_id", "result")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    result: _inference_pb2.InferenceResult
    def __init__(self, call_id: _Optional[int] = ..., result: _Optional[_Union[_inference_pb2.InferenceResult, _Mapping]] = ...) -> None: ...

class CancelRequestsRequest(_message.Message):
    __slots__ = ("request_ids", "tenant", "reason")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    reason: str
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., tenant: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelRequestsResponse(_message.Message):
    __slots__ = ("request_ids",)
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job_id", "state", "tenant", "create_time", "start_time", "end_time", "due_time", "delete_time", "counts", "error", "labels", "usage")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELETE_TIME_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: JobState
    tenant: str
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    due_time: _timestamp_pb2.Timestamp
    delete_time: _timestamp_pb2.Timestamp
    counts: JobCounts
    error: _types_pb2.Error
    labels: _containers.ScalarMap[str, str]
    usage: _types_pb2.Usage
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., tenant: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., counts: _Optional[_Union[JobCounts, _Mapping]] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class JobCounts(_message.Message):
    __slots__ = ("total", "pending", "running", "succeeded", "failed", "cancelled", "expired", "preempted")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    preempted: int
    def __init__(self, total: _Optional[int] = ..., pending: _Optional[int] = ..., running: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., expired: _Optional[int] = ..., preempted: _Optional[int] = ...) -> None: ...

class JobItem(_message.Message):
    __slots__ = ("custom_id", "request")
    CUSTOM_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    custom_id: str
    request: _inference_pb2.InferenceRequest
    def __init__(self, custom_id: _Optional[str] = ..., request: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ...) -> None: ...

class JobInput(_message.Message):
    __slots__ = ("items", "json_lines", "ref")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    JSON_LINES_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[JobItem]
    json_lines: bytes
    ref: _inference_pb2.PayloadRef
    def __init__(self, items: _Optional[_Iterable[_Union[JobItem, _Mapping]]] = ..., json_lines: _Optional[bytes] = ..., ref: _Optional[_Union[_inference_pb2.PayloadRef, _Mapping]] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("job_id", "tenant", "input", "more", "defaults", "completion_window", "ttl", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_WINDOW_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    input: JobInput
    more: bool
    defaults: _inference_pb2.InferenceRequest
    completion_window: _duration_pb2.Duration
    ttl: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ..., input: _Optional[_Union[JobInput, _Mapping]] = ..., more: bool = ..., defaults: _Optional[_Union[_inference_pb2.InferenceRequest, _Mapping]] = ..., completion_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class AppendJobRequest(_message.Message):
    __slots__ = ("job_id", "tenant", "start_index", "input", "last")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    START_INDEX_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    start_index: int
    input: JobInput
    last: bool
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ..., start_index: _Optional[int] = ..., input: _Optional[_Union[JobInput, _Mapping]] = ..., last: bool = ...) -> None: ...

class AppendJobResponse(_message.Message):
    __slots__ = ("job", "next_index")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    job: Job
    next_index: int
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., next_index: _Optional[int] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "tenant")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "tenant", "states", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    tenant: str
    states: _containers.RepeatedScalarFieldContainer[JobState]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., tenant: _Optional[str] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("index", "custom_id", "result")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    index: int
    custom_id: str
    result: _inference_pb2.InferenceResult
    def __init__(self, index: _Optional[int] = ..., custom_id: _Optional[str] = ..., result: _Optional[_Union[_inference_pb2.InferenceResult, _Mapping]] = ...) -> None: ...

class ListJobResultsRequest(_message.Message):
    __slots__ = ("job_id", "tenant", "page_size", "page_token", "not_succeeded")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NOT_SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    page_size: int
    page_token: str
    not_succeeded: bool
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., not_succeeded: bool = ...) -> None: ...

class ListJobResultsResponse(_message.Message):
    __slots__ = ("results", "next_page_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[JobResult]
    next_page_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[JobResult, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id", "tenant", "results", "resume_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    results: bool
    resume_token: str
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ..., results: bool = ..., resume_token: _Optional[str] = ...) -> None: ...

class WatchJobResponse(_message.Message):
    __slots__ = ("job", "results", "resume_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: Job
    results: _containers.RepeatedCompositeFieldContainer[JobResult]
    resume_token: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., results: _Optional[_Iterable[_Union[JobResult, _Mapping]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "tenant", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., tenant: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("model", "base_model", "state", "ready_nodes", "task_types", "context_length", "streaming", "features", "degrade_to")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    READY_NODES_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DEGRADE_TO_FIELD_NUMBER: _ClassVar[int]
    model: str
    base_model: str
    state: _types_pb2.ModelState
    ready_nodes: int
    task_types: _containers.RepeatedScalarFieldContainer[str]
    context_length: int
    streaming: bool
    features: _containers.RepeatedScalarFieldContainer[str]
    degrade_to: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., base_model: _Optional[str] = ..., state: _Optional[_Union[_types_pb2.ModelState, str]] = ..., ready_nodes: _Optional[int] = ..., task_types: _Optional[_Iterable[str]] = ..., context_length: _Optional[int] = ..., streaming: bool = ..., features: _Optional[_Iterable[str]] = ..., degrade_to: _Optional[_Iterable[str]] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "instance_id", "cluster_id", "term", "protocol_version", "features", "limits", "server_time", "tenants")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    instance_id: str
    cluster_id: str
    term: int
    protocol_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    server_time: _timestamp_pb2.Timestamp
    tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., instance_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., term: _Optional[int] = ..., protocol_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., server_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_request_bytes", "max_message_bytes", "max_json_depth", "max_requests_per_job", "max_timeout", "max_detach_grace")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_JSON_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_PER_JOB_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_message_bytes: int
    max_json_depth: int
    max_requests_per_job: int
    max_timeout: _duration_pb2.Duration
    max_detach_grace: _duration_pb2.Duration
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_json_depth: _Optional[int] = ..., max_requests_per_job: _Optional[int] = ..., max_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_detach_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
