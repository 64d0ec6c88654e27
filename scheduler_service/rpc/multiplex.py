"""Many calls on one stream: how do they come in, and how does each end?

A bad call gets its own typed result and its neighbours go on; only a message that does not parse as
a whole ends the stream. When the stream is gone, so are its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

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
    failed,
    principal_of,
    tracing_of,
)
from scheduler_service.rpc.streams import MultiplexWriter
from scheduler_service.rpc.validate import Refused


class _MultiplexCall:
    """One call of a Multiplex stream."""

    __slots__ = ("call_id", "entry", "stream", "streams")

    def __init__(self, call_id: int, streams: bool, stream: MultiplexStream) -> None:
        self.call_id = call_id
        self.streams = streams
        self.stream = stream
        self.entry: Entry | None = None

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Pass it on under this call's id."""
        mine = scheduler_service_pb2.Accepted()
        mine.CopyFrom(message)
        mine.call_id = self.call_id
        self.stream.writer.accepted(mine)

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Pass it on under this call's id."""
        mine = scheduler_service_pb2.Started()
        mine.CopyFrom(message)
        mine.call_id = self.call_id
        self.stream.writer.started(mine)

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
        writer = self.stream.writer
        if not writer.delta(self.call_id, choice, channel, offset, text, tokens, token_ids):
            self.stream.cut_off(self)

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Pass it on under this call's id."""
        mine = types_pb2.DeltaExtra()
        mine.CopyFrom(extra)
        mine.id = self.call_id
        self.stream.writer.extra(mine)

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:  # noqa: ARG002
        """The end."""
        self.stream.calls.pop(self.call_id, None)
        self.stream.writer.result(self.call_id, result)
        self.stream.check_done()


class MultiplexStream:
    """The calls of one Multiplex stream."""

    def __init__(self, intake: Intake) -> None:
        self.calls: dict[int, _MultiplexCall] = {}
        self.writer = MultiplexWriter(intake.limits.max_output_buffer)
        self._intake = intake
        self._book = intake.book
        self._done = False  # the client sends no more calls

    async def serve(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Read and write until the client is done and answered, or gone."""
        reader = asyncio.create_task(self._read(requests, context))
        try:
            await self.writer.run(context.write)
            await reader
        except Refused as refused:
            await status.abort_with(context, refused.error)
        finally:
            reader.cancel()
            self._leave_all()

    def go_away(self) -> None:
        """Ask the client to open a new stream for new calls."""
        self.writer.going_away()

    async def _read(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Take in calls until the client is done or gone."""
        principal, tracing = principal_of(context), tracing_of(context)
        opened = False
        try:
            async for data in requests:
                message = parse(wire_pb2.PackedMultiplexRequest, data)
                if message.HasField("open") is opened:
                    raise Refused("`open` comes in the first message, and only there", field="open")
                if not opened:
                    opened = True
                    self._open(message.open)
                for index, call in enumerate(message.calls):
                    self._call(call, index, principal, tracing)
                for call_id in message.cancel_call_ids:
                    self._cancel(call_id)
                if message.done:
                    break
        except Refused:
            self.writer.close()
            raise
        finally:
            self._done = True
            self.check_done()

    def _open(self, message: scheduler_service_pb2.MultiplexOpen) -> None:
        opened = scheduler_service_pb2.MultiplexOpened(
            stream_id=f"s-{self._intake.next_number():x}",
            features=[f for f in message.features if f in FEATURES],
            limits=self._intake.limits_message(),
        )
        self.writer.opened(opened, self._intake.limits.max_outstanding)

    def _call(self, data: bytes, index: int, principal: str, tracing: tuple[str, str]) -> None:
        """One call of a Multiplex message; whatever is wrong with it stays with it."""
        call_id = 0
        where = f"calls[{index}]."
        try:
            packed = parse(wire_pb2.PackedCall, data, prefix=where)
            call_id = packed.call_id
            self._check_room(call_id)
            opening = Opening(packed.request, principal, tracing)
            if packed.HasField("detach_grace"):
                opening.detach_grace = self._intake.grace(packed.detach_grace)
            if packed.HasField("attach"):
                opening.attach = packed.attach
        except Refused as refused:
            self._refuse(call_id, refused.error, where)
            return
        call = _MultiplexCall(call_id, packed.stream, self)
        self.calls[call_id] = call
        try:
            call.entry = self._intake.open(opening, call, prefix=f"{where}request.")
        except Refused as refused:
            del self.calls[call_id]
            self._refuse(call_id, refused.error, where)

    def _check_room(self, call_id: int) -> None:
        if call_id == 0 or call_id in self.calls:
            raise Refused("call_id must be above 0 and unique in the stream", field="call_id")
        if len(self.calls) >= self._intake.limits.max_outstanding:
            raise Refused(
                f"{len(self.calls)} calls are outstanding, the most for a stream",
                reason=Reason.QUEUE_FULL,
                retry_after=100_000_000,
            )

    def _refuse(self, call_id: int, error: types_pb2.Error, where: str) -> None:
        if error.field and not error.field.startswith(where):
            error.field = where + error.field
        self.writer.result(call_id, failed(error))

    def check_done(self) -> None:
        """After `done`, the stream ends with its last result."""
        if self._done and not self.calls:
            self.writer.close()

    def _cancel(self, call_id: int) -> None:
        """The client cancels one call; it still gets its result."""
        call = self.calls.get(call_id)
        if call is None or call.entry is None:
            return
        if len(call.entry.callers) > 1:  # others wait for the same request: only this one leaves
            self._book.leave(call.entry, call)
            self._refuse_left(call, Reason.CANCELLED_BY_CLIENT, "cancelled by its caller")
        else:
            self._book.cancel(call.entry, Reason.CANCELLED_BY_CLIENT, "cancelled by its caller")

    def cut_off(self, call: _MultiplexCall) -> None:
        """Its output buffer stayed full."""
        if call.entry is None or call.call_id not in self.calls:
            return
        self.writer.drop(call.call_id)
        entry = call.entry
        self._book.leave(entry, call, Reason.CLIENT_TOO_SLOW)
        self._refuse_left(call, Reason.CLIENT_TOO_SLOW, "its output was not read in time")

    def _refuse_left(self, call: _MultiplexCall, reason: Reason, message: str) -> None:
        assert call.entry is not None
        call.streams = False
        result = failed(status.error(reason, message), call.entry.request.request_id)
        call.finish(result, None)

    def _leave_all(self) -> None:
        """The stream is gone."""
        for call in list(self.calls.values()):
            if call.entry is not None:
                self._book.leave(call.entry, call)
        self.calls.clear()
