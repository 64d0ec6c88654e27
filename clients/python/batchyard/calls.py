"""A call in flight: what is sent for it, and where its answer goes.

A transport (`link.py`, `unary.py`) carries calls. It reports what happens by `accepted`, `started`,
`delta`, `extra` and then exactly one of `finish` and `fail`, none of which raises for a caller that
has gone: the one reader of a stream must survive everything that a single call does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from batchyard.durations import write_duration
from batchyard.errors import BatchyardError
from batchyard.output import Delta, OutputBuffer, StreamEvent
from batchyard.v1 import Accepted, DeltaExtra, InferenceResult, MultiplexRequest, Started
from batchyard.v1 import Call as ProtoCall

if TYPE_CHECKING:
    from batchyard.tracing import CallSpan

__all__ = ["Call", "Carrier", "StreamCall", "UnaryCall"]


class Carrier(Protocol):
    """Whoever has the call now."""

    def cancel(self, call: Call) -> None:
        """Forgets the call, here and on the server."""


class Call:
    """What both kinds share. `frame` is a MultiplexRequest with this call alone.

    Encoded messages may be joined: frames of many calls, one after the other, are one message
    with all the calls. So each call is serialised once and packing is joining bytes.
    """

    __slots__ = ("breaks", "call_id", "carrier", "deadline", "frame", "proto", "span")

    def __init__(self, frame: MultiplexRequest, deadline: float | None) -> None:
        self.frame = frame
        self.proto: ProtoCall = frame.calls[0]
        self.deadline = deadline  # loop time; None: none
        self.call_id = 0
        self.breaks = 0  # streams that ended under it
        self.carrier: Carrier | None = None
        self.span: CallSpan | None = None

    @property
    def request_id(self) -> str:
        return self.proto.request.request_id

    @property
    def settled(self) -> bool:
        raise NotImplementedError

    def number(self, call_id: int) -> None:
        self.call_id = call_id
        self.proto.call_id = call_id

    def cancel(self) -> None:
        """Stops the work, wherever it is. Does nothing when no one carries it."""
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            carrier.cancel(self)

    def prepare_again(self, now: float) -> None:
        """Before it is sent once more: less time is left."""
        if self.deadline is not None:
            write_duration(self.proto.request.timeout, max(self.deadline - now, 0.001))

    def accepted(self, accepted: Accepted) -> None:
        pass

    def started(self, started: Started) -> None:
        pass

    def delta(self, delta: Delta) -> None:
        pass

    def extra(self, extra: DeltaExtra) -> None:
        pass

    def finish(self, result: InferenceResult) -> None:
        raise NotImplementedError

    def fail(self, error: BatchyardError) -> None:
        raise NotImplementedError


class UnaryCall(Call):
    """Wants the result only."""

    __slots__ = ("future",)

    def __init__(
        self,
        frame: MultiplexRequest,
        deadline: float | None,
        future: asyncio.Future[InferenceResult],
    ) -> None:
        super().__init__(frame, deadline)
        self.future = future

    @property
    def settled(self) -> bool:
        return self.future.done()

    def finish(self, result: InferenceResult) -> None:
        self.carrier = None
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BatchyardError) -> None:
        self.carrier = None
        if not self.future.done():
            self.future.set_exception(error)


class StreamCall(Call):
    """Wants the output as it comes. One consumer takes `events` and awaits `wait()` for more."""

    __slots__ = (
        "_waiter",
        "error",
        "events",
        "last_started",
        "output",
        "queue_position",
        "result",
    )

    def __init__(self, frame: MultiplexRequest, deadline: float | None) -> None:
        super().__init__(frame, deadline)
        self.proto.stream = True
        self.output = OutputBuffer()
        self.events: deque[StreamEvent] = deque()
        self.result: InferenceResult | None = None
        self.error: BatchyardError | None = None
        self.queue_position: int | None = None
        self.last_started: Started | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def settled(self) -> bool:
        return self.result is not None or self.error is not None

    async def wait(self) -> None:
        """Returns when there are events, or the call is settled. Only one waiter is woken."""
        while not self.events and not self.settled:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def reopen(self) -> None:
        """Before another try: what has arrived stays, and the try goes on behind it."""
        self.result = None
        self.error = None

    def prepare_again(self, now: float) -> None:
        super().prepare_again(now)
        point = self.output.attach_point()
        if point is not None:
            self.proto.attach.CopyFrom(point)

    def accepted(self, accepted: Accepted) -> None:
        if accepted.HasField("queue_position"):
            self.queue_position = accepted.queue_position

    def started(self, started: Started) -> None:
        self.last_started = started
        if self.output.start(started):
            self.events.clear()
            self._add(StreamEvent(restarted=True))

    def delta(self, delta: Delta) -> None:
        event = self.output.add(delta)
        if event is not None:
            self._add(event)

    def extra(self, extra: DeltaExtra) -> None:
        self._add(self.output.add_extra(extra))

    def finish(self, result: InferenceResult) -> None:
        self.carrier = None
        if not self.settled:
            for event in self.output.complete(result):
                self._add(event)
            self.result = result
            self._wake()

    def fail(self, error: BatchyardError) -> None:
        self.carrier = None
        if not self.settled:
            self.error = error
            self._wake()

    def _add(self, event: StreamEvent) -> None:
        self.events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
