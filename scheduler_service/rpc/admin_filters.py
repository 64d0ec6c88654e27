"""What do operators ask about? Reads the filters and lengths of AdminService, and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration as DurationProto

from batchyard.v1 import admin_service_pb2, report_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.state import State
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Node, Request
from scheduler_service.report.build import ReportOptions
from scheduler_service.report.requests import job_of
from scheduler_service.report.statistics import Statistics
from scheduler_service.report.texts import language_of
from scheduler_service.rpc.validate import Refused, nanoseconds
from scheduler_service.security.grants import holds_token
from scheduler_service.security.permits import tenant_of
from scheduler_service.security.principals import current

REASON_MAX: Final = 256
IDS_MAX: Final = 1_000
EVENTS_MAX: Final = 1_000
EVENTS_DEFAULT: Final = 50
INTERVAL_MIN: Final = 100 * MILLISECOND
INTERVAL_DEFAULT: Final = 1 * SECOND


def report_options(
    request: admin_service_pb2.GetReportRequest, kept: Statistics, prefix: str = ""
) -> ReportOptions:
    """What report is asked for; a window beyond what is remembered is cut to it.

    Raises:
        Refused: naming the field, after `prefix`.
    """
    window = kept.window
    if request.HasField("window"):
        window = nanoseconds(request.window, f"{prefix}window", zero=False)
    if request.max_events > EVENTS_MAX:
        raise Refused(
            f"max_events is {request.max_events}; at most {EVENTS_MAX}",
            field=f"{prefix}max_events",
        )
    return ReportOptions(
        window=min(window, kept.memory),
        language=language_of(request.language),
        nodes=not request.omit_nodes,
        queues=not request.omit_queues,
        events=request.max_events or EVENTS_DEFAULT,
    )


def interval(request: admin_service_pb2.WatchReportRequest) -> Duration:
    """Between two reports.

    Raises:
        Refused: it is below 100 ms.
    """
    if not request.HasField("interval"):
        return INTERVAL_DEFAULT
    asked = nanoseconds(request.interval, "interval", zero=True)
    if asked < INTERVAL_MIN:
        raise Refused("interval must be at least 100 ms", field="interval")
    return asked


def grace(length: DurationProto | None) -> Duration:
    """Of a drain; None: no limit."""
    return NEVER if length is None else min(NEVER, nanoseconds(length, "grace", zero=True))


def reason(text: str) -> str:
    """What an operator gave as the reason.

    Raises:
        Refused: it is too long, or holds a token.
    """
    if len(text) > REASON_MAX:
        raise Refused(f"a reason has at most {REASON_MAX} characters", field="reason")
    if holds_token(text):
        raise Refused("a reason is shown to others and must not hold a token", field="reason")
    return text


def known_values(numbers: Any, enum: Any, field: str) -> frozenset[int]:
    """The numbers of an enum that a filter names.

    Raises:
        Refused: one is not known here, or unspecified.
    """
    for index, number in enumerate(numbers):
        if number == 0 or number not in enum.values():
            raise Refused(f"{number} is no value of it", field=f"{field}[{index}]")
    return frozenset(int(number) for number in numbers)


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """A `RequestFilter`, checked."""

    ids: frozenset[str]
    tenant: str
    model: str
    node_id: str
    job_id: str
    min_priority: int
    max_priority: int  # 0: no bound
    states: frozenset[int]
    classes: frozenset[int]
    tenants: tuple[str, ...] | None = None  # that the asker may see; None: all

    def takes(self, request: Request) -> bool:
        """Whether all that is set matches."""
        return (
            (self.tenants is None or request.tenant in self.tenants)
            and (not self.ids or request.request_id in self.ids)
            and (not self.tenant or request.tenant == self.tenant)
            and (not self.model or request.model == self.model)
            and (not self.node_id or _runs_on(request, self.node_id))
            and (not self.job_id or job_of(request) == self.job_id)
            and request.priority >= self.min_priority
            and (not self.max_priority or request.priority <= self.max_priority)
            and (not self.states or int(request.state) in self.states)
            and (not self.classes or int(request.request_class) in self.classes)
        )


def _runs_on(request: Request, node_id: str) -> bool:
    """Whether its last attempt is or was there."""
    return bool(request.attempts) and request.attempts[-1].node.node_id == node_id


def request_query(given: admin_service_pb2.RequestFilter) -> RequestQuery:
    """The filter, checked, and narrowed to what the asker may see.

    Raises:
        Refused: naming the field below `filter`.
    """
    if given.tenant:
        tenant_of(current(), given.tenant, "filter.tenant")
    if len(given.request_ids) > IDS_MAX:
        raise Refused(f"at most {IDS_MAX} ids", field="filter.request_ids")
    for name in ("min_priority", "max_priority"):
        if not 0 <= getattr(given, name) <= 10:
            raise Refused(
                f"{name} is {getattr(given, name)}; it must be 1..10, or 0 for no bound",
                field=f"filter.{name}",
            )
    return RequestQuery(
        frozenset(given.request_ids),
        given.tenant,
        given.model,
        given.node_id,
        given.job_id,
        given.min_priority,
        given.max_priority,
        known_values(given.states, report_pb2.RequestState, "filter.states"),
        known_values(given.request_classes, types_pb2.RequestClass, "filter.request_classes"),
        current().tenants,
    )


def every_request(state: State) -> Iterator[Request]:
    """Open ones, then finished ones as long as they are remembered."""
    yield from state.requests.values()
    yield from state.finished


def own(node: report_pb2.Node) -> report_pb2.Node:
    """The node without the request ids of its drain, which may be any tenant's, where the asker is
    bound to some; their numbers stay.
    """
    if current().tenants is not None:
        for name in ("finished_request_ids", "moved_request_ids", "lost_request_ids"):
            node.drain.ClearField(name)
    return node


def find_request(state: State, request_id: str, tenant: str) -> Request:
    """The newest of that id.

    Raises:
        Refused: there is none, or several tenants use the id and none is named.
    """
    if not request_id:
        raise Refused("request_id is missing", field="request_id")
    asker = current()  # who learns nothing of other tenants, not even that they are there
    if tenant:
        tenant_of(asker, tenant)
    found: dict[str, Request] = {}  # by tenant
    for request in every_request(state):
        mine = asker.may_see(request.tenant)
        if mine and request.request_id == request_id and tenant in ("", request.tenant):
            former = found.get(request.tenant)
            if former is None or former.rid < request.rid:
                found[request.tenant] = request
    if not found:
        raise not_found("request", request_id)
    if len(found) > 1:
        raise Refused(f"{len(found)} tenants use this id: name the tenant", field="tenant")
    return next(iter(found.values()))


def find_node(state: State, node_id: str) -> Node:
    """A node that is shown, lost ones for a while, too.

    Raises:
        Refused: there is none.
    """
    if not node_id:
        raise Refused("node_id is missing", field="node_id")
    node = state.nodes.get(node_id)
    if node is None:
        raise not_found("node", node_id)
    return node


def not_found(kind: str, name: str) -> Refused:
    """There is no such resource (any more)."""
    return Refused(
        f"there is no {kind} {name[:64]!r} here",
        reason=Reason.RESOURCE_NOT_FOUND,
        metadata={"resource": f"{kind}/{name[:64]}"},
    )
