"""What can operators call? AdminService: decode, ask the report, encode.

Reads are views of the core's state; `admin_changes.py` has the calls that change something.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import report_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.config import SchedulerConfig
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.state import State
from scheduler_service.driver import Driver
from scheduler_service.eventlog import EventFilter, EventLog, Watcher
from scheduler_service.report.build import ReportBuilder, ReportOptions
from scheduler_service.report.diagnosis import Thresholds
from scheduler_service.report.events import event_number
from scheduler_service.report.nodes import NodeView
from scheduler_service.report.queues import queue_stats
from scheduler_service.report.requests import details, summary
from scheduler_service.report.statistics import Statistics
from scheduler_service.report.texts import Language
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc import paging, status
from scheduler_service.rpc.admin_changes import AdminChanges
from scheduler_service.rpc.admin_explain import AdminExplain
from scheduler_service.rpc.admin_holds import AdminHolds
from scheduler_service.rpc.admin_logs import AdminLogs
from scheduler_service.rpc.admin_models import AdminModels, Commanded
from scheduler_service.rpc.admin_policy import AdminPolicy
from scheduler_service.rpc.convert import parse
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.permits import tenant_of
from scheduler_service.security.principals import current

SERVICE: Final = "batchyard.v1.AdminService"
EVENTS_PER_MESSAGE: Final = 1_000

Context = grpc.aio.ServicerContext[bytes, bytes]
M = TypeVar("M", bound=Message)


class NodeStream(NodeView, Commanded, Protocol):
    """An agent's session."""


class Sessions(Protocol):
    """The node port, as far as operators see it."""

    def session(self, node_id: str, epoch: int) -> NodeStream | None:
        """An open session."""

    def last_price(self, node_id: str) -> types_pb2.Money | None:
        """What an hour of the node cost when its last session ended; None: not known."""


class AdminPort:
    """AdminService. Made on a running loop."""

    def __init__(
        self,
        *,
        driver: Driver,
        eventlog: EventLog,
        statistics: Statistics,
        sessions: Sessions,
        clock: Clock,
        version: str,
        thresholds: Thresholds | None = None,
        cancel: Callable[[int, Reason, str], None] | None = None,
        config: SchedulerConfig | None = None,
        on_policy: Callable[[SchedulerConfig], None] | None = None,
    ) -> None:
        """`config`: what it started with. `on_policy`: told of what is in force instead."""
        self._driver = driver
        self._eventlog = eventlog
        self._clock = clock
        self._closed = asyncio.Event()
        self._reports = ReportBuilder(
            driver=driver,
            statistics=statistics,
            eventlog=eventlog,
            views=sessions.session,
            last_price=sessions.last_price,
            clock=clock,
            version=version,
            thresholds=thresholds,
        )
        self._explainer = AdminExplain(clock, eventlog)
        config = config or SchedulerConfig()
        self._holds = AdminHolds(driver, self._reports, clock)
        self._logs = AdminLogs(self._reports, sessions.session, clock, config.log.level)
        self._policy = AdminPolicy(
            driver, self._reports, clock, config=config, on_changed=on_policy or _nobody
        )
        self._models = AdminModels(self._reports, sessions.session, clock)
        self._changes = AdminChanges(
            driver, self._reports, sessions.session, cancel or driver.cancel
        )

    @property
    def reports(self) -> ReportBuilder:
        """What builds its reports; the dashboard and the metrics take theirs from it."""
        return self._reports

    @property
    def _state(self) -> State:
        return self._driver.scheduler.state

    def handlers(self) -> grpc.GenericRpcHandler:
        """Everything of the service, on raw bytes."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetReport": _unary(pb.GetReportRequest, self.get_report),
            "WatchReport": _stream(pb.WatchReportRequest, self.watch_report),
            "ListNodes": _unary(pb.ListNodesRequest, self.list_nodes),
            "GetNode": _unary(pb.GetNodeRequest, self.get_node),
            "CordonNode": _unary(pb.CordonNodeRequest, self._changes.cordon_node),
            "UncordonNode": _unary(pb.UncordonNodeRequest, self._changes.uncordon_node),
            "DrainNode": _unary(pb.DrainNodeRequest, self._changes.drain_node),
            "LoadModel": _unary(pb.LoadModelRequest, self._models.load_model),
            "UnloadModel": _unary(pb.UnloadModelRequest, self._models.unload_model),
            "ListQueues": _unary(pb.ListQueuesRequest, self.list_queues),
            "ListRequests": _unary(pb.ListRequestsRequest, self.list_requests),
            "GetRequest": _unary(pb.GetRequestRequest, self.get_request),
            "ExplainRequest": _unary(pb.ExplainRequestRequest, self.explain_request),
            "CancelMatching": _unary(pb.CancelMatchingRequest, self._changes.cancel_matching),
            "PausePool": _unary(pb.PausePoolRequest, self._holds.pause_pool),
            "ResumePool": _unary(pb.ResumePoolRequest, self._holds.resume_pool),
            "FreezeAutoscale": _unary(pb.FreezeAutoscaleRequest, self._holds.freeze),
            "UnfreezeAutoscale": _unary(pb.UnfreezeAutoscaleRequest, self._holds.unfreeze),
            "GetPolicy": _unary(pb.GetPolicyRequest, self._policy.get_policy),
            "UpdatePolicy": _unary(pb.UpdatePolicyRequest, self._policy.update_policy),
            "SetLogLevel": _unary(pb.SetLogLevelRequest, self._logs.set_log_level),
            "ListEvents": _unary(pb.ListEventsRequest, self.list_events),
            "WatchEvents": _stream(pb.WatchEventsRequest, self.watch_events),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def close(self) -> None:
        """End all watches; the streams end as if there were nothing more to see."""
        self._closed.set()

    async def get_report(self, request: pb.GetReportRequest, _: Context) -> pb.GetReportResponse:
        """The whole report."""
        options = filters.report_options(request, self._reports.statistics)
        return pb.GetReportResponse(report=self.report(options))

    async def watch_report(
        self, request: pb.WatchReportRequest, _: Context
    ) -> AsyncGenerator[pb.WatchReportResponse, None]:
        """The report now, and again after each interval."""
        interval_s = filters.interval(request) / 1e9
        statistics = self._reports.statistics
        options = filters.report_options(request.report, statistics, prefix="report.")
        while not self._closed.is_set():
            yield pb.WatchReportResponse(report=self.report(options))
            await self._until_closed(interval_s)

    def report(self, options: ReportOptions) -> report_pb2.Report:
        """Without what names other tenants, where the asker is bound to some."""
        asker = current()
        report = self._reports.build(options, tenants=asker.tenants)
        if asker.tenants is not None:
            for rows in (report.costs, report.slowest, report.tenants):
                for index in reversed(range(len(rows))):
                    if not asker.may_see(rows[index].tenant):
                        del rows[index]
        return report

    async def _until_closed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), timeout_s)

    async def list_nodes(self, request: pb.ListNodesRequest, _: Context) -> pb.ListNodesResponse:
        """By id."""
        size, after = paging.page_size(request.page_size), paging.cursor(request)
        availabilities = filters.known_values(
            request.availabilities, report_pb2.NodeAvailability, "availabilities"
        )
        healths = filters.known_values(request.healths, report_pb2.NodeHealth, "healths")
        rows = (
            node
            for node_id, node in sorted(self._state.nodes.items())
            if node_id > after
            and (not availabilities or int(node.availability) in availabilities)
            and (not healths or int(node.health) in healths)
            and (not request.pool or any(request.pool in e.models for e in node.engines.values()))
        )
        shown, token = paging.page(request, rows, size, lambda node: node.node_id)
        window = self._reports.window()
        return pb.ListNodesResponse(
            nodes=[filters.own(self._reports.node(node, window)) for node in shown],
            next_page_token=token,
        )

    async def get_node(self, request: pb.GetNodeRequest, _: Context) -> pb.GetNodeResponse:
        """One node, whole."""
        found = filters.find_node(self._state, request.node_id)
        node = self._reports.node(found, self._reports.window())
        return pb.GetNodeResponse(node=filters.own(node))

    async def list_queues(self, request: pb.ListQueuesRequest, _: Context) -> pb.ListQueuesResponse:
        """By pool, class and priority."""
        size, after = paging.page_size(request.page_size), paging.cursor(request)
        pool = request.pool or request.model  # a pool is of one model
        tenant = tenant_of(current(), request.tenant)
        rows = queue_stats(self._state, self._reports.window(), pool=pool, tenant=tenant)
        if request.pool and request.model not in ("", request.pool):
            rows = []
        left = (row for row in sorted(rows, key=_queue_key) if _queue_key(row) > after)
        shown, token = paging.page(request, left, size, _queue_key)
        return pb.ListQueuesResponse(queues=shown, next_page_token=token)

    async def list_requests(
        self, request: pb.ListRequestsRequest, _: Context
    ) -> pb.ListRequestsResponse:
        """Newest first."""
        size, after = paging.page_size(request.page_size), paging.cursor(request)
        query = filters.request_query(request.filter)
        before = int(after, 16) if after else 1 << 63
        matching = (
            each
            for each in filters.every_request(self._state)
            if each.rid < before and query.takes(each)
        )
        rows = heapq.nlargest(size + 1, matching, key=lambda each: each.rid)
        shown, token = paging.page(request, rows, size, lambda each: f"{each.rid:x}")
        now = self._clock.now()
        return pb.ListRequestsResponse(
            requests=[summary(each, now) for each in shown], next_page_token=token
        )

    async def get_request(self, request: pb.GetRequestRequest, _: Context) -> pb.GetRequestResponse:
        """One request, whole, without its prompt and output."""
        found = filters.find_request(self._state, request.request_id, request.tenant)
        return details(found, self._clock)

    async def explain_request(
        self, request: pb.ExplainRequestRequest, _: Context
    ) -> pb.ExplainRequestResponse:
        """Why it waits, and what was decided for it."""
        return self._explainer.answer(self._state, request)

    def explanation(
        self, request_id: str, tenant: str, language: Language
    ) -> pb.ExplainRequestResponse:
        """All decisions of a request, on one page."""
        asked = pb.ExplainRequestRequest(
            request_id=request_id, tenant=tenant, language=language, page_size=paging.PAGE_MAX
        )
        return self._explainer.answer(self._state, asked)

    async def list_events(self, request: pb.ListEventsRequest, _: Context) -> pb.ListEventsResponse:
        """Newest first."""
        size, after = paging.page_size(request.page_size), paging.cursor(request)
        wanted = EventFilter(
            kinds=frozenset(request.events),
            request_id=request.request_id,
            node_id=request.node_id,
            since=self._instant(request),
            tenants=current().tenants,
        )
        rows = self._eventlog.newest(wanted, before=int(after, 16) if after else 0)
        shown, token = paging.page(request, rows, size, lambda entry: f"{entry.number:x}")
        return pb.ListEventsResponse(
            events=[self._reports.events.write(entry) for entry in shown], next_page_token=token
        )

    def _instant(self, request: pb.ListEventsRequest) -> int:
        """The monotonic instant of `start_time`; 0: the beginning."""
        if not request.HasField("start_time"):
            return 0
        wall = request.start_time.seconds * 1_000_000_000 + request.start_time.nanos
        return wall - self._clock.wall_ns(0)

    async def watch_events(
        self, request: pb.WatchEventsRequest, _: Context
    ) -> AsyncGenerator[pb.WatchEventsResponse, None]:
        """Events as they happen, many per message when they come fast."""
        after = None
        if request.after_event_id:
            try:
                after = event_number(request.after_event_id, self._eventlog.term)
            except ValueError as fault:
                raise Refused(str(fault), field="after_event_id") from None
        wanted = EventFilter(frozenset(request.events), tenants=current().tenants)
        watcher = self._eventlog.watch(wanted, after=after)
        try:
            while await self._news(watcher):
                entries, gap = watcher.take(EVENTS_PER_MESSAGE)
                events = [self._reports.events.write(entry) for entry in entries]
                yield pb.WatchEventsResponse(events=events, gap=gap)
        finally:
            self._eventlog.unwatch(watcher)

    async def _news(self, watcher: Watcher) -> bool:
        """Wait for events; False: the port is closing."""
        news = asyncio.ensure_future(watcher.wait())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((news, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            closed.cancel()
        return not self._closed.is_set()


def _nobody(_: SchedulerConfig) -> None:
    """No edge to tell."""


def _queue_key(row: report_pb2.QueueStats) -> str:
    """Interactive before jobs, most urgent first; equal length within a pool."""
    return f"{row.pool}\0{row.request_class}{10 - row.priority}"


def _unary(
    kind: type[M], method: Callable[[M, Context], Awaitable[Message]]
) -> grpc.RpcMethodHandler[Any, Any]:
    async def handler(data: bytes, context: Context) -> bytes:
        try:
            answer = await method(parse(kind, data), context)
        except Refused as refused:
            await status.abort_with(context, refused.error)
        return answer.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(handler)


def _stream(
    kind: type[M], method: Callable[[M, Context], AsyncGenerator[Message, None]]
) -> grpc.RpcMethodHandler[Any, Any]:
    async def handler(data: bytes, context: Context) -> None:
        try:
            # Closed here and now, whatever ends the stream: a watch must not outlive its reader.
            async with contextlib.aclosing(method(parse(kind, data), context)) as answers:
                async for answer in answers:
                    await context.write(answer.SerializeToString())
        except Refused as refused:
            await status.abort_with(context, refused.error)

    return grpc.unary_stream_rpc_method_handler(handler)
