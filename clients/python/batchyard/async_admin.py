"""What operators call: the report, nodes, requests and events. Answers are the raw messages.

    async with AsyncAdmin() as admin:
        report = await admin.report(window="10m")
        async for node in admin.nodes():
            print(node.node_id)

The admin address is the argument, else BATCHYARD_ADMIN_ADDRESS, else 127.0.0.1:7613.
`client.admin` is one with the client's credentials.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any

import grpc

from batchyard.channel import (
    Tls,
    admin_address_of,
    check_token_stays_secret,
    metadata_of,
    open_channel,
)
from batchyard.durations import Duration, parse_duration, write_duration
from batchyard.rpc import call_stream, call_unary
from batchyard.v1 import (
    AdminServiceStub,
    CancelMatchingRequest,
    CancelMatchingResponse,
    CordonNodeRequest,
    DrainNodeRequest,
    Event,
    ExplainRequestRequest,
    ExplainRequestResponse,
    FreezeAutoscaleRequest,
    GetNodeRequest,
    GetPolicyRequest,
    GetReportRequest,
    GetRequestRequest,
    GetRequestResponse,
    ListEventsRequest,
    ListNodesRequest,
    ListQueuesRequest,
    ListRequestsRequest,
    LoadModelRequest,
    Node,
    NodeAvailability,
    NodeHealth,
    PausePoolRequest,
    Policy,
    Pool,
    QueueStats,
    Report,
    RequestFilter,
    RequestSummary,
    ResumePoolRequest,
    SetLogLevelRequest,
    UncordonNodeRequest,
    UnfreezeAutoscaleRequest,
    UnloadModelRequest,
    UpdatePolicyRequest,
    UpdatePolicyResponse,
    WatchEventsRequest,
    WatchEventsResponse,
    WatchReportRequest,
)

__all__ = ["AsyncAdmin"]


class AsyncAdmin:
    """A client of AdminService, for one event loop."""

    def __init__(
        self, address: str | None = None, *, api_key: str | None = None, tls: Tls = None
    ) -> None:
        self.address = admin_address_of(address)
        check_token_stays_secret(self.address, api_key, tls)
        self._metadata = metadata_of(api_key)
        self._tls = tls
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def report(
        self,
        *,
        window: Duration | None = None,
        language: str = "",
        omit_nodes: bool = False,
        omit_queues: bool = False,
        max_events: int = 0,
    ) -> Report:
        """The whole report. `window` defaults to 5 minutes; `language` is "en" or "zh"."""
        request = _report_request(window, language, omit_nodes, omit_queues, max_events)
        response = await self._call("GetReport", request)
        report: Report = response.report
        return report

    async def watch_report(
        self,
        *,
        interval: Duration | None = None,
        window: Duration | None = None,
        language: str = "",
        omit_nodes: bool = False,
        omit_queues: bool = False,
        max_events: int = 0,
    ) -> AsyncIterator[Report]:
        """The report now and then each `interval` (1 s), until the loop is left."""
        request = WatchReportRequest(
            report=_report_request(window, language, omit_nodes, omit_queues, max_events)
        )
        if interval is not None:
            write_duration(request.interval, parse_duration(interval, "interval"))
        async for response in self._watch("WatchReport", request):
            yield response.report

    async def nodes(
        self,
        *,
        availabilities: Iterable[NodeAvailability] = (),
        healths: Iterable[NodeHealth] = (),
        pool: str = "",
    ) -> AsyncIterator[Node]:
        """All nodes that match."""
        request = ListNodesRequest(availabilities=availabilities, healths=healths, pool=pool)
        async for node in self._pages("ListNodes", request, "nodes"):
            yield node

    async def node(self, node_id: str) -> Node:
        """One node; NotFound if there is none."""
        return await self._node_call("GetNode", GetNodeRequest(node_id=node_id))

    async def cordon(self, node_id: str, *, reason: str = "") -> Node:
        """No new work for the node; what runs goes on."""
        return await self._node_call(
            "CordonNode", CordonNodeRequest(node_id=node_id, reason=reason)
        )

    async def uncordon(self, node_id: str, *, reason: str = "") -> Node:
        """The node may work again."""
        return await self._node_call(
            "UncordonNode", UncordonNodeRequest(node_id=node_id, reason=reason)
        )

    async def drain(
        self,
        node_id: str,
        *,
        grace: Duration | None = None,
        reason: str = "",
        terminate: bool = False,
    ) -> Node:
        """Cordons the node; what still runs after `grace` is moved. `node.drain` has the progress.

        `terminate`: the agent exits when drained.
        """
        request = DrainNodeRequest(node_id=node_id, reason=reason, terminate=terminate)
        if grace is not None:
            write_duration(request.grace, parse_duration(grace, "grace"))
            request.grace.SetInParent()
        return await self._node_call("DrainNode", request)

    async def load_model(
        self,
        node_id: str,
        model: str,
        *,
        engine_id: str = "",
        options: Mapping[str, object] | None = None,
        reason: str = "",
    ) -> Node:
        """Begins to load a model on a node, where its engine can; `node.report` has its state, and
        an event tells the end: "model_loaded" or "model_failed".

        `engine_id` may be left out where the node has one engine. `options` are the engine's own.
        Raises UnsupportedFeature where it cannot load models.
        """
        request = LoadModelRequest(
            node_id=node_id,
            engine_id=engine_id,
            model=model,
            options_json=json.dumps(dict(options)) if options else "",
            reason=reason,
        )
        return await self._node_call("LoadModel", request)

    async def unload_model(
        self, node_id: str, model: str, *, engine_id: str = "", reason: str = ""
    ) -> Node:
        """Begins to unload a model from a node: nothing new of it, and when what runs is through,
        it goes. An event tells the end: "model_unloaded" or "model_failed".
        """
        request = UnloadModelRequest(
            node_id=node_id, engine_id=engine_id, model=model, reason=reason
        )
        return await self._node_call("UnloadModel", request)

    async def requests(
        self, matching: RequestFilter | None = None, *, page_size: int = 0
    ) -> AsyncIterator[RequestSummary]:
        """Requests that match, newest first; finished ones as long as they are remembered."""
        request = ListRequestsRequest(filter=matching, page_size=page_size)
        async for summary in self._pages("ListRequests", request, "requests"):
            yield summary

    async def request(self, request_id: str, *, tenant: str = "") -> GetRequestResponse:
        """One request with its attempts, without prompt and output; NotFound if there is none."""
        asked = GetRequestRequest(request_id=request_id, tenant=tenant)
        response: GetRequestResponse = await self._call("GetRequest", asked)
        return response

    async def explain(
        self, request_id: str, *, tenant: str = "", language: str = ""
    ) -> ExplainRequestResponse:
        """Why a request waits, or what was decided for it: with all its decisions."""
        asked = ExplainRequestRequest(
            request_id=request_id, tenant=tenant, language=language, page_size=1_000
        )
        whole: ExplainRequestResponse = await self._call("ExplainRequest", asked)
        while whole.next_page_token:
            asked.page_token = whole.next_page_token
            page = await self._call("ExplainRequest", asked)
            whole.decisions.extend(page.decisions)
            whole.next_page_token = page.next_page_token
        return whole

    async def queues(
        self, *, pool: str = "", tenant: str = "", page_size: int = 0
    ) -> AsyncIterator[QueueStats]:
        """What waits, by pool, class and priority."""
        request = ListQueuesRequest(pool=pool, tenant=tenant, page_size=page_size)
        async for queue in self._pages("ListQueues", request, "queues"):
            yield queue

    async def cancel_matching(
        self, matching: RequestFilter, *, reason: str = "", validate_only: bool = False
    ) -> CancelMatchingResponse:
        """Cancel all open requests that match, of any tenant; or only say which would be."""
        request = CancelMatchingRequest(filter=matching, reason=reason, validate_only=validate_only)
        response: CancelMatchingResponse = await self._call("CancelMatching", request)
        return response

    async def pause_pool(self, pool: str, *, reason: str = "") -> Pool:
        """It queues and does not dispatch; what runs goes on."""
        response = await self._call("PausePool", PausePoolRequest(pool=pool, reason=reason))
        paused: Pool = response.pool
        return paused

    async def resume_pool(self, pool: str, *, reason: str = "") -> Pool:
        """It dispatches again."""
        response = await self._call("ResumePool", ResumePoolRequest(pool=pool, reason=reason))
        resumed: Pool = response.pool
        return resumed

    async def freeze_autoscale(
        self, pool: str = "", *, duration: Duration | None = None, reason: str = ""
    ) -> list[Pool]:
        """The autoscaler of a pool (empty: of all) plans and does nothing, for that long."""
        request = FreezeAutoscaleRequest(pool=pool, reason=reason)
        if duration is not None:
            write_duration(request.duration, parse_duration(duration, "duration"))
        return list((await self._call("FreezeAutoscale", request)).pools)

    async def unfreeze_autoscale(self, pool: str = "", *, reason: str = "") -> list[Pool]:
        """It acts again."""
        request = UnfreezeAutoscaleRequest(pool=pool, reason=reason)
        return list((await self._call("UnfreezeAutoscale", request)).pools)

    async def set_log_level(
        self, level: str = "", *, logger: str = "", node_id: str = "", reason: str = ""
    ) -> None:
        """Of the scheduler or a node's agent; empty: the configured level, all of its loggers."""
        request = SetLogLevelRequest(level=level, logger=logger, node_id=node_id, reason=reason)
        await self._call("SetLogLevel", request)

    async def policy(self) -> Policy:
        """The policies in force: `yaml` is the live subset of the scheduler's configuration."""
        response = await self._call("GetPolicy", GetPolicyRequest())
        policy: Policy = response.policy
        return policy

    async def update_policy(
        self, yaml: str, *, etag: str = "", reason: str = "", validate_only: bool = False
    ) -> UpdatePolicyResponse:
        """Put another one in force, until the scheduler restarts. What it does not say is default.

        Args:
            yaml: a scheduler.yaml; what is not of its live subset is checked and left alone.
            etag: of the policy that it replaces; `Conflict` where that is not in force any more.
            validate_only: check it, and say what would be different; change nothing.

        Raises:
            InvalidRequest: with everything that is wrong with it.
            Conflict: see `etag`.
        """
        request = UpdatePolicyRequest(
            policy=Policy(yaml=yaml, etag=etag), reason=reason, validate_only=validate_only
        )
        response: UpdatePolicyResponse = await self._call("UpdatePolicy", request)
        return response

    async def events(
        self,
        *,
        events: Iterable[str] = (),
        since: datetime | None = None,
        request_id: str = "",
        node_id: str = "",
        page_size: int = 0,
    ) -> AsyncIterator[Event]:
        """Events that match, newest first."""
        request = ListEventsRequest(
            events=events, request_id=request_id, node_id=node_id, page_size=page_size
        )
        if since is not None:
            request.start_time.FromDatetime(since)
        async for event in self._pages("ListEvents", request, "events"):
            yield event

    async def watch_events(
        self, *, events: Iterable[str] = (), after_event_id: str = ""
    ) -> AsyncIterator[WatchEventsResponse]:
        """Events as they happen, several at a time; `gap` says that some were missed."""
        request = WatchEventsRequest(events=events, after_event_id=after_event_id)
        async for response in self._watch("WatchEvents", request):
            yield response

    async def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def _node_call(self, method: str, request: Any) -> Node:
        response = await self._call(method, request)
        node: Node = response.node
        return node

    async def _pages(self, method: str, request: Any, items: str) -> AsyncIterator[Any]:
        while True:
            page = await self._call(method, request)
            for item in getattr(page, items):
                yield item
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _call(self, method: str, request: Any) -> Any:
        return await call_unary(self._method(method), request, self._metadata, self.address)

    def _watch(self, method: str, request: Any) -> AsyncIterator[Any]:
        return call_stream(self._method(method), request, self._metadata, self.address)

    def _method(self, name: str) -> Any:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("the admin client is closed")
        if self._loop is None:
            self._loop = loop
            self._channel = open_channel(self.address, self._tls)
        elif self._loop is not loop:
            raise RuntimeError("an admin client belongs to one event loop; create one in each")
        stub: Any = AdminServiceStub
        return getattr(stub(self._channel), name)


def _report_request(
    window: Duration | None,
    language: str,
    omit_nodes: bool,
    omit_queues: bool,
    max_events: int,
) -> GetReportRequest:
    request = GetReportRequest(
        language=language,
        omit_nodes=omit_nodes,
        omit_queues=omit_queues,
        max_events=max_events,
    )
    if window is not None:
        write_duration(request.window, parse_duration(window, "window"))
    return request
