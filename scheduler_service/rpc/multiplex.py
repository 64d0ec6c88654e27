"""Many calls on one stream: how do they come in, and how does each end?

A bad call gets its own typed result and its neighbours go on; only a message that does not parse as
a whole ends the stream. When the stream is gone, so are its calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from batchyard.v1 import scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.rpc import status
from scheduler_service.rpc.convert import parse
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import (
    FEATURES,
    Context,
    Intake,
    Opening,
    StreamOpening,
    principal_of,
    tracing_of,
)
from scheduler_service.rpc.results import failed
from scheduler_service.rpc.streams import MultiplexWriter
from scheduler_service.rpc.validate import Refused, nanoseconds
from service_kit import wire_walk

log = logging.getLogger(__name__)

MAX_COALESCE: Final = 1_000_000_000
_TURN: Final = 0xFF  # calls of one message that are taken in without a pause, less one
_LARGE: Final = 16 << 10  # bytes of a call that has a pause before it; also of bad ones before one
_CALL_ID: Final = wire_pb2.PackedCall.CALL_ID_FIELD_NUMBER


class _MultiplexCall:
    """One call of a Multiplex stream."""

    __slots__ = ("call_id", "cut", "entry", "stream", "streams")

    def __init__(self, call_id: int, streams: bool, stream: MultiplexStream) -> None:
        self.call_id = call_id
        self.streams = streams
        self.stream = stream
        self.cut = False  # nobody reads its output any more
        self.entry: Entry | None = None

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Pass it on under this call's id."""
        message.call_id = self.call_id
        self.stream.writer.accepted(message)

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Pass it on under this call's id."""
        message.call_id = self.call_id
        self.stream.writer.started(message)

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """Pass it on; cut the call off where its reader is too slow."""
        if self.cut:
            return
        writer = self.stream.writer
        if not writer.delta(self.call_id, choice, channel, offset, text, tokens, token_ids):
            self.stream.cut_off(self)

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Pass it on under this call's id."""
        mine = types_pb2.DeltaExtra()
        mine.CopyFrom(extra)
        mine.id = self.call_id
        if not self.cut and not self.stream.writer.extra(mine):
            self.stream.cut_off(self)

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:  # noqa: ARG002
        """The end."""
        stream = self.stream
        stream.calls.pop(self.call_id, None)
        stream.writer.result(self.call_id, result)
        if not stream.calls:
            stream.check_done()


class MultiplexStream:
    """The calls of one Multiplex stream."""

    def __init__(self, intake: Intake) -> None:
        limits = intake.limits
        self.calls: dict[int, _MultiplexCall] = {}
        self.writer = MultiplexWriter(limits.max_output_buffer, limits.max_outstanding)
        self._intake = intake
        self._book = intake.book
        self._most = limits.max_outstanding
        self._done = False  # the client sends no more calls
        self._active = True  # a message has come since the alarm was set
        self._idle = False  # it was ended for that
        self._alarm: asyncio.TimerHandle | None = None
        self._trace: StreamOpening | None = None  # where requests are traced

    async def serve(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Read and write until the client is done and answered, or gone."""
        if self._intake.traces:
            now, peer = self._intake.clock.now(), context.peer() or ""
            self._trace = StreamOpening(tracing_of(context), now, peer)
        reader = asyncio.create_task(self._read(requests, context), name="multiplex reader")
        self._watch_idle()
        try:
            await self.writer.run(context.write)
            if not self._idle:  # else the client says nothing, perhaps for ever
                await reader
        except Refused as refused:
            await status.abort_with(context, refused.error)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._leave_all()  # before anything is awaited: a second cancel may come
            if self._trace is not None and self._trace.on_end is not None:
                self._trace.on_end()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def _watch_idle(self) -> None:
        """End the stream when two alarms in a row find no call and no new message."""
        if not self._active and not self.calls:
            self._idle = True
            self.writer.going_away()
            self.writer.close()
            return
        self._active = False
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(self._intake.idle_stream / 1e9, self._watch_idle)

    def go_away(self) -> None:
        """Ask the client to open a new stream for new calls."""
        self.writer.going_away()

    async def _read(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Take in calls until the client is done or gone."""
        principal, tracing = principal_of(context), tracing_of(context)
        opened = False
        try:
            async for data in requests:
                self._active = True
                message = parse(wire_pb2.PackedMultiplexRequest, data)
                if message.HasField("open") is opened:
                    raise Refused("`open` comes in the first message, and only there", field="open")
                if not opened:
                    opened = True
                    self._open(message.open)
                opening = Opening(b"", principal, tracing, stream=self._trace)
                opening.received_at = self._intake.clock.now()
                bad = 0  # bytes: where the fault is in them is looked for, which takes long
                for index, call in enumerate(message.calls):
                    if index & _TURN == _TURN or len(call) > _LARGE or bad > _LARGE:
                        bad = 0
                        await self._give_way()
                    if not self._call(call, index, opening):
                        bad += len(call)
                for index, call_id in enumerate(message.cancel_call_ids):
                    if index & _TURN == _TURN:
                        await self._give_way()
                    self._cancel(call_id)
                if message.done:
                    break
                await self.writer.room()
        except Refused:
            self.writer.close()
            raise
        finally:
            self._done = True
            self.check_done()

    async def _give_way(self) -> None:
        """A message has millions of calls, or large ones, if its sender wants: others come between
        them, and their ends do not pile up.
        """
        await self.writer.room()
        await asyncio.sleep(0)

    def _open(self, message: scheduler_service_pb2.MultiplexOpen) -> None:
        if message.HasField("coalesce"):
            coalesce = nanoseconds(message.coalesce, "open.coalesce", zero=True)
            if coalesce > MAX_COALESCE:
                raise Refused("open.coalesce must be 0..1 s", field="open.coalesce")
        opened = scheduler_service_pb2.MultiplexOpened(
            stream_id=f"s-{self._intake.next_number():x}",
            features=[f for f in message.features if f in FEATURES],
            limits=self._intake.limits_message(),
        )
        self.writer.opened(opened, self._intake.limits.max_outstanding)

    def _call(self, data: bytes, index: int, opening: Opening) -> bool:
        """Begin one call of a Multiplex message; False: it is bad, and has its result. Whatever is
        wrong with it stays with it.

        Args:
            data: PackedCall.
            index: in the message.
            opening: what all its calls have alike; it is filled in anew for each.
        """
        call_id = 0
        try:
            packed = parse(wire_pb2.PackedCall, data)
            call_id = packed.call_id
            self._begin(packed, opening)
        except Refused as refused:
            error = refused.error
            self._intake.refused(error, opening.principal)
            call_id = call_id or wire_walk.numbers(data).get(_CALL_ID, 0)
            if call_id in self.calls:  # of another: it must not take this for its own end
                call_id = 0
            if error.field or error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT:
                refused.within(f"calls[{index}]")
        except Exception:  # ours: the stream's other calls go on
            log.exception("call %d cannot be taken in", call_id, extra={"event": "call_failed"})
            error = status.error(Reason.INTERNAL, "a fault of the scheduler itself; it is logged")
        else:
            return True
        self.writer.result(call_id, failed(error))
        return False

    def _begin(self, packed: wire_pb2.PackedCall, opening: Opening) -> None:
        call_id = packed.call_id
        if call_id == 0 or call_id in self.calls or len(self.calls) >= self._most:
            raise self._no_room(call_id)
        opening.data = packed.request
        opening.detach_grace = self._intake.grace(packed.detach_grace)
        opening.attach = packed.attach if packed.HasField("attach") else None
        call = _MultiplexCall(call_id, packed.stream, self)
        self.calls[call_id] = call
        try:
            call.entry = self._intake.open(opening, call)
        except BaseException:
            del self.calls[call_id]
            raise
        if call.cut:  # by what it lacked of a request in flight
            self.cut_off(call)

    def _no_room(self, call_id: int) -> Refused:
        if call_id == 0:
            text = "call_id must be above 0: choose another number for each call of the stream"
            return Refused(text, field="call_id")
        if call_id in self.calls:
            return Refused(
                f"call_id {call_id} is that of another call of this stream, which goes on: send "
                "this one again under a number of its own",
                field="call_id",
                metadata={"callId": str(call_id)},
            )
        return Refused(
            f"{len(self.calls)} calls are outstanding, the most for a stream",
            reason=Reason.QUEUE_FULL,
            metadata={"queueDepth": str(len(self.calls))},
            retry_after=100_000_000,
        )

    def check_done(self) -> None:
        """After `done`, the stream ends with its last result."""
        if self._done and not self.calls:
            self.writer.close()

    def _cancel(self, call_id: int) -> None:
        """The client cancels one call; it still gets its result."""
        call = self.calls.get(call_id)
        if call is not None and call.entry is not None:
            why = "cancelled by its caller"
            self._book.give_up(call.entry, call, Reason.CANCELLED_BY_CLIENT, why)

    def cut_off(self, call: _MultiplexCall) -> None:
        """Its output buffer stayed full."""
        call.cut = True
        self.writer.drop(call.call_id)
        if call.entry is not None:
            why = "its output was not read in time"
            self._book.give_up(call.entry, call, Reason.CLIENT_TOO_SLOW, why)

    def _leave_all(self) -> None:
        """The stream is gone."""
        for call in list(self.calls.values()):
            if call.entry is not None:
                self._book.leave(call.entry, call)
        self.calls.clear()
