"""How do operators change something? By events of the core, with who asked and why.

The answer is given when the core has applied the change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

import grpc
from google.protobuf import json_format

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import report_pb2
from scheduler_service.core import drains, records
from scheduler_service.core.events import DrainRequested, NodeCordoned
from scheduler_service.core.outcomes import NodeAvailability, Reason
from scheduler_service.core.types import Node
from scheduler_service.driver import Driver
from scheduler_service.report.build import ReportBuilder
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc.admin_models import Find, able_session
from scheduler_service.rpc.asker import principal_of
from scheduler_service.rpc.validate import Refused

# The driver turns once per loop iteration and takes 256 events each: no inbox is that long.
TURNS_MAX: Final = 1_000
FILTER_MAX: Final = 256  # characters of a filter in its event
_DRAINS: Final = (NodeAvailability.DRAINING, NodeAvailability.DRAINED)

Context = grpc.aio.ServicerContext[bytes, bytes]
Cancel = Callable[[int, Reason, str], None]


class AdminChanges:
    """The calls of AdminService that change something."""

    def __init__(self, driver: Driver, reports: ReportBuilder, find: Find, cancel: Cancel) -> None:
        self._driver = driver
        self._reports = reports
        self._find = find
        self._cancel = cancel

    async def cordon_node(
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        """No new work for it."""
        event = NodeCordoned(request.node_id, True, filters.reason(request.reason))
        node = await self._change(event, records.NODE_CORDONED, context, _is_out)
        return pb.CordonNodeResponse(node=node)

    async def uncordon_node(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> pb.UncordonNodeResponse:
        """Work for it again; takes a drain back, too, while its agent can still be told."""
        event = NodeCordoned(request.node_id, False, filters.reason(request.reason))
        self._check_lift(self._node(request.node_id))
        node = await self._change(event, records.NODE_UNCORDONED, context, _is_active)
        self._check_lift(self._node(request.node_id))  # it may have drained meanwhile
        return pb.UncordonNodeResponse(node=node)

    def _check_lift(self, node: Node) -> None:
        """Raises Refused where the node drains and will not come back."""
        why = drains.why_it_leaves(node)
        if why:
            raise Refused(
                f"node {node.node_id!r} cannot be called back: {why}; start the agent again",
                reason=Reason.NODE_DRAINING,
            )
        if node.alive and node.availability in _DRAINS and node.drain and node.drain.terminate:
            able_session(self._reports, self._find, node.node_id, "lift_drain")

    async def drain_node(
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        """Begin to drain it; the node shows the progress."""
        event = DrainRequested(
            request.node_id,
            filters.grace(request.grace if request.HasField("grace") else None),
            request.terminate,
            filters.reason(request.reason),
        )
        node = await self._change(event, records.NODE_DRAINING, context, _is_draining)
        return pb.DrainNodeResponse(node=node)

    async def _change(
        self,
        event: NodeCordoned | DrainRequested,
        kind: str,
        context: Context,
        is_done: Callable[[Node], bool],
    ) -> report_pb2.Node:
        """Post the event, and write the node as it is once the core has applied it."""
        node = self._node(event.node_id)
        if not node.alive:
            raise Refused(
                f"node {event.node_id!r} is lost; only a live node can be changed",
                reason=Reason.RESOURCE_NOT_FOUND,
                metadata={"resource": f"node/{event.node_id}"},
            )
        with self._reports.eventlog.asked_by(principal_of(context), kind, event.node_id):
            node = await self._applied(event, is_done)
        return filters.own(self._reports.node(node, self._reports.window()))

    async def _applied(
        self, event: NodeCordoned | DrainRequested, is_done: Callable[[Node], bool]
    ) -> Node:
        """Post, and wait for the driver's turns; one is enough unless the inbox is long."""
        self._driver.post(event)
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            node = self._node(event.node_id)
            if not node.alive or is_done(node):
                break
        return node

    def _node(self, node_id: str) -> Node:
        return filters.find_node(self._reports.state, node_id)

    async def cancel_matching(
        self, request: pb.CancelMatchingRequest, context: Context
    ) -> pb.CancelMatchingResponse:
        """Cancel all open requests that match."""
        why = filters.reason(request.reason)
        if not request.filter.ListFields():
            raise Refused("set at least one field of the filter", field="filter")
        query = filters.request_query(request.filter)
        requests = self._reports.state.requests
        matching = [each for each in requests.values() if query.takes(each)]
        if not request.validate_only:
            principal = principal_of(context)
            message = f"by {principal}" + (f": {why}" if why else "")
            for each in matching:
                self._cancel(each.rid, Reason.CANCELLED_BY_ADMIN, message)
            data = {"requests": len(matching), "filter": _written(request.filter), "reason": why}
            self._reports.eventlog.tell(
                records.REQUESTS_CANCELLED, self._driver.clock.now(), principal=principal, data=data
            )
        ids = [each.request_id for each in matching[: filters.IDS_MAX]]
        return pb.CancelMatchingResponse(count=len(matching), request_ids=ids)


def _written(given: pb.RequestFilter) -> str:
    """What is set of it, on one line; not a thousand ids."""
    fields = json_format.MessageToDict(given, preserving_proto_field_name=True)
    text = json.dumps(fields, ensure_ascii=False)
    return text if len(text) <= FILTER_MAX else f"{text[:FILTER_MAX]}..."


def _is_out(node: Node) -> bool:
    return node.availability is not NodeAvailability.ACTIVE


def _is_active(node: Node) -> bool:
    return node.availability is NodeAvailability.ACTIVE


def _is_draining(node: Node) -> bool:
    return node.availability in _DRAINS
