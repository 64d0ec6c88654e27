"""Which right does each method need? The one table, of every service and every HTTP path.

What is not in it is refused to everybody, whatever they may do, so a new method works only once
somebody has decided who may call it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler_service.security.principals import Right


@dataclass(frozen=True, slots=True)
class Rule:
    """What a caller needs."""

    right: Right = Right.NONE
    open: bool = False  # to callers that nobody knows, too


OPEN: Final = Rule(open=True)
KNOWN: Final = Rule()  # any valid credential
USE: Final = Rule(Right.USE)
JOBS: Final = Rule(Right.JOBS)
READ: Final = Rule(Right.READ)
OPERATE: Final = Rule(Right.OPERATE)
ADMIN: Final = Rule(Right.ADMIN)
AGENT: Final = Rule(Right.AGENT)


def _of(service: str, **methods: Rule) -> dict[str, Rule]:
    return {f"/{service}/{method}": rule for method, rule in methods.items()}


RPCS: Final[dict[str, Rule]] = {
    **_of(
        "batchyard.v1.SchedulerService",
        Generate=USE,
        GenerateStream=USE,
        Multiplex=USE,
        CancelRequests=USE,
        ListModels=USE,
        GetServerInfo=KNOWN,
        CreateJob=JOBS,
        AppendJob=JOBS,
        GetJob=JOBS,
        ListJobs=JOBS,
        ListJobResults=JOBS,
        WatchJob=JOBS,
        CancelJob=JOBS,
    ),
    **_of("batchyard.v1.NodeService", Connect=AGENT),
    **_of(
        "batchyard.v1.AdminService",
        GetReport=READ,
        WatchReport=READ,
        ListNodes=READ,
        GetNode=READ,
        ListQueues=READ,
        ListRequests=READ,
        GetRequest=READ,
        ExplainRequest=READ,
        ListEvents=READ,
        WatchEvents=READ,
        GetPolicy=READ,
        CordonNode=OPERATE,
        UncordonNode=OPERATE,
        DrainNode=OPERATE,
        LoadModel=OPERATE,
        UnloadModel=OPERATE,
        PausePool=OPERATE,
        ResumePool=OPERATE,
        FreezeAutoscale=OPERATE,
        UnfreezeAutoscale=OPERATE,
        CancelMatching=OPERATE,
        UpdatePolicy=ADMIN,
        SetLogLevel=ADMIN,
    ),
    # Probes of orchestrators have no credentials; what they learn is one word.
    **_of("grpc.health.v1.Health", Check=OPEN, Watch=KNOWN),
    **_of("grpc.reflection.v1alpha.ServerReflection", ServerReflectionInfo=KNOWN),
}

HTTP: Final[dict[tuple[str, str], Rule]] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): READ,
    # The page itself says nothing of this scheduler; what it shows comes from the feed.
    ("GET", "/"): OPEN,
    ("GET", "/dashboard.css"): OPEN,
    ("GET", "/dashboard.js"): OPEN,
    ("GET", "/parts.js"): OPEN,
    ("GET", "/words.js"): OPEN,
    ("GET", "/api/report"): READ,
    ("GET", "/api/watch"): READ,
    ("GET", "/api/explain/{request_id}"): READ,
}
