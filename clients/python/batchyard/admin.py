"""What operators call, for code without an event loop; `AsyncAdmin` is for code with one."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from batchyard.async_admin import AsyncAdmin
from batchyard.background import BackgroundLoop, SyncIterator
from batchyard.channel import Tls
from batchyard.durations import Duration
from batchyard.v1 import (
    CancelMatchingResponse,
    Event,
    ExplainRequestResponse,
    GetRequestResponse,
    Node,
    NodeAvailability,
    NodeHealth,
    Policy,
    Pool,
    QueueStats,
    Report,
    RequestFilter,
    RequestSummary,
    UpdatePolicyResponse,
    WatchEventsResponse,
)

__all__ = ["Admin", "AsyncAdmin"]


class Admin:
    """What operators call. The methods are those of AsyncAdmin.

    with Admin() as admin:
        print(admin.report().queue_size)
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        api_key: str | None = None,
        tls: Tls = None,
        core: AsyncAdmin | None = None,
        loop: BackgroundLoop | None = None,
    ) -> None:
        """`core` and `loop` are for `Client.admin`, which shares its thread."""
        self._core = core or AsyncAdmin(address, api_key=api_key, tls=tls)
        self._loop = loop or BackgroundLoop()
        self._finish = None if loop else weakref.finalize(self, self._loop.finish, self._core.close)

    @property
    def address(self) -> str:
        return self._core.address

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(
        self,
        *,
        window: Duration | None = None,
        language: str = "",
        omit_nodes: bool = False,
        omit_queues: bool = False,
        max_events: int = 0,
    ) -> Report:
        """The whole report. `window` defaults to 5 minutes; `language` is "en" or "zh"."""
        return self._loop.run(
            self._core.report(
                window=window,
                language=language,
                omit_nodes=omit_nodes,
                omit_queues=omit_queues,
                max_events=max_events,
            )
        )

    def watch_report(
        self,
        *,
        interval: Duration | None = None,
        window: Duration | None = None,
        language: str = "",
        omit_nodes: bool = False,
        omit_queues: bool = False,
        max_events: int = 0,
    ) -> Iterator[Report]:
        """The report now and then each `interval` (1 s), until the loop is left."""
        source = self._core.watch_report(
            interval=interval,
            window=window,
            language=language,
            omit_nodes=omit_nodes,
            omit_queues=omit_queues,
            max_events=max_events,
        )
        return SyncIterator(self._loop, source)

    def nodes(
        self,
        *,
        availabilities: Iterable[NodeAvailability] = (),
        healths: Iterable[NodeHealth] = (),
        pool: str = "",
    ) -> Iterator[Node]:
        """All nodes that match."""
        source = self._core.nodes(availabilities=availabilities, healths=healths, pool=pool)
        return SyncIterator(self._loop, source)

    def node(self, node_id: str) -> Node:
        """One node; NotFound if there is none."""
        return self._loop.run(self._core.node(node_id))

    def cordon(self, node_id: str, *, reason: str = "") -> Node:
        """No new work for the node; what runs goes on."""
        return self._loop.run(self._core.cordon(node_id, reason=reason))

    def uncordon(self, node_id: str, *, reason: str = "") -> Node:
        """The node may work again."""
        return self._loop.run(self._core.uncordon(node_id, reason=reason))

    def drain(
        self,
        node_id: str,
        *,
        grace: Duration | None = None,
        reason: str = "",
        terminate: bool = False,
    ) -> Node:
        """Cordons the node; what still runs after `grace` is moved. See AsyncAdmin."""
        return self._loop.run(
            self._core.drain(node_id, grace=grace, reason=reason, terminate=terminate)
        )

    def load_model(
        self,
        node_id: str,
        model: str,
        *,
        engine_id: str = "",
        options: Mapping[str, object] | None = None,
        reason: str = "",
    ) -> Node:
        """Begins to load a model on a node, where its engine can. See AsyncAdmin."""
        return self._loop.run(
            self._core.load_model(
                node_id, model, engine_id=engine_id, options=options, reason=reason
            )
        )

    def unload_model(
        self, node_id: str, model: str, *, engine_id: str = "", reason: str = ""
    ) -> Node:
        """Begins to unload a model from a node, when what runs of it is through."""
        return self._loop.run(
            self._core.unload_model(node_id, model, engine_id=engine_id, reason=reason)
        )

    def requests(
        self, matching: RequestFilter | None = None, *, page_size: int = 0
    ) -> Iterator[RequestSummary]:
        """Requests that match, newest first; finished ones as long as they are remembered."""
        return SyncIterator(self._loop, self._core.requests(matching, page_size=page_size))

    def request(self, request_id: str, *, tenant: str = "") -> GetRequestResponse:
        """One request with its attempts, without prompt and output; NotFound if there is none."""
        return self._loop.run(self._core.request(request_id, tenant=tenant))

    def explain(
        self, request_id: str, *, tenant: str = "", language: str = ""
    ) -> ExplainRequestResponse:
        """Why a request waits, or what was decided for it: with all its decisions."""
        return self._loop.run(self._core.explain(request_id, tenant=tenant, language=language))

    def queues(
        self, *, pool: str = "", tenant: str = "", page_size: int = 0
    ) -> Iterator[QueueStats]:
        """What waits, by pool, class and priority."""
        source = self._core.queues(pool=pool, tenant=tenant, page_size=page_size)
        return SyncIterator(self._loop, source)

    def cancel_matching(
        self, matching: RequestFilter, *, reason: str = "", validate_only: bool = False
    ) -> CancelMatchingResponse:
        """Cancel all open requests that match, of any tenant; or only say which would be."""
        return self._loop.run(
            self._core.cancel_matching(matching, reason=reason, validate_only=validate_only)
        )

    def pause_pool(self, pool: str, *, reason: str = "") -> Pool:
        """It queues and does not dispatch; what runs goes on."""
        return self._loop.run(self._core.pause_pool(pool, reason=reason))

    def resume_pool(self, pool: str, *, reason: str = "") -> Pool:
        """It dispatches again."""
        return self._loop.run(self._core.resume_pool(pool, reason=reason))

    def freeze_autoscale(
        self, pool: str = "", *, duration: Duration | None = None, reason: str = ""
    ) -> list[Pool]:
        """The autoscaler of a pool (empty: of all) plans and does nothing, for that long."""
        return self._loop.run(self._core.freeze_autoscale(pool, duration=duration, reason=reason))

    def unfreeze_autoscale(self, pool: str = "", *, reason: str = "") -> list[Pool]:
        """It acts again."""
        return self._loop.run(self._core.unfreeze_autoscale(pool, reason=reason))

    def set_log_level(
        self, level: str = "", *, logger: str = "", node_id: str = "", reason: str = ""
    ) -> None:
        """Of the scheduler or a node's agent; empty: the configured level, all of its loggers."""
        self._loop.run(
            self._core.set_log_level(level, logger=logger, node_id=node_id, reason=reason)
        )

    def policy(self) -> Policy:
        """The policies in force: `yaml` is the live subset of the scheduler's configuration."""
        return self._loop.run(self._core.policy())

    def update_policy(
        self, yaml: str, *, etag: str = "", reason: str = "", validate_only: bool = False
    ) -> UpdatePolicyResponse:
        """Put another one in force, until the scheduler restarts: see `AsyncAdmin`."""
        return self._loop.run(
            self._core.update_policy(yaml, etag=etag, reason=reason, validate_only=validate_only)
        )

    def events(
        self,
        *,
        events: Iterable[str] = (),
        since: datetime | None = None,
        request_id: str = "",
        node_id: str = "",
        page_size: int = 0,
    ) -> Iterator[Event]:
        """Events that match, newest first."""
        source = self._core.events(
            events=events,
            since=since,
            request_id=request_id,
            node_id=node_id,
            page_size=page_size,
        )
        return SyncIterator(self._loop, source)

    def watch_events(
        self, *, events: Iterable[str] = (), after_event_id: str = ""
    ) -> Iterator[WatchEventsResponse]:
        """Events as they happen, several at a time; `gap` says that some were missed."""
        source = self._core.watch_events(events=events, after_event_id=after_event_id)
        return SyncIterator(self._loop, source)

    def close(self) -> None:
        """Closes the connection, unless it is a client's. Idempotent."""
        if self._finish is not None:
            self._finish()
