"""What do engines have in common that make one call to a server for each item?

They take what their `Works` have room for while their server serves, and leave waiting, starting,
cancelling and ending to it. A kind says how an item becomes a call, how a call is made, and what
its failures mean.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.faults import ItemFailed, unavailable
from node_agent.engines.interface import EngineError, Item, Sink
from node_agent.engines.works import Work, Works

log = logging.getLogger(__name__)

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING

Call = TypeVar("Call")


class Server(Protocol):
    """What an engine works with."""

    @property
    def health(self) -> node_service_pb2.EngineHealth:
        """Work is taken while it is SERVING."""
        ...

    @property
    def message(self) -> str:
        """Why it is not; may be empty."""
        ...

    async def start(self) -> None:
        """Find it or bring it up. Raises EngineStartError."""
        ...

    async def stop(self) -> None:
        """Leave it, or end it."""
        ...


class ItemwiseEngine(ABC, Generic[Call]):
    """Half of an `Engine`: all of its life but for what it says of itself."""

    def __init__(self, server: Server, works: Works[Call]) -> None:
        self._its_server = server
        self._works = works
        self._sink: Sink | None = None

    async def start(self, sink: Sink) -> None:
        """Report to `sink`, and bring the server up."""
        self._sink = sink
        self._works.start(sink)
        await self._its_server.start()

    async def stop(self, grace_s: float) -> None:
        """End what runs, then the server."""
        await self._works.stop(grace_s)
        await self._its_server.stop()

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:  # noqa: ARG002
        """Run these. Their servers batch by themselves: what comes together need not start so."""
        for item in items:
            self._hold(item)
        self._works.start_waiting()

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        """Stop this item."""
        self._works.cancel(dispatch_id, reason)

    def _hold(self, item: Item) -> None:
        """Hold an item, or end it with why not."""
        server = self._its_server
        try:
            if self._works.stopping or server.health != SERVING:
                why = server.message or "it starts or stops"
                raise ItemFailed(unavailable(f"the engine does not serve: {why}", refused=True))
            self._admit(item)
        except ItemFailed as failure:
            self._works.refuse(item, failure.error)

    def _tell_change(self) -> None:
        """Health, models or slots changed."""
        if self._sink is not None:
            self._sink.changed()
            self._works.start_waiting()

    @abstractmethod
    def _admit(self, item: Item) -> None:
        """Add its call to the works. Raises ItemFailed."""

    @abstractmethod
    def _explain(self, work: Work[Call], failure: BaseException) -> EngineError | None:
        """What the failure of a call means for the item, and for the server; None: as it says."""
