"""One Multiplex stream: one writer, one reader, many calls.

The writer is self-clocking: while a write is awaited, calls gather; the next message takes all of
them, up to 256 calls or 64 KiB. So an idle client sends at once, and a busy one sends few, large
messages. No call has a task or a timer of its own.

Life:  first message `open`, together with the first calls
       -> calls and cancels, answers in any order, as `max_outstanding` allows
       -> `going_away` from the server, or `finish()`: no new calls, `done` once all are answered
       -> the end, reported to the owner with whatever calls are left
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from batchyard.calls import Call
from batchyard.errors import BatchyardError, InvalidRequest, ProtocolError, Unavailable
from batchyard.output import read_deltas
from batchyard.status import from_rpc_error
from batchyard.v1 import (
    InferenceResult,
    MultiplexOpen,
    MultiplexRequest,
    MultiplexResponse,
    TokenDeltas,
)
from batchyard.version import version

__all__ = ["Link", "MULTIPLEX_METHOD"]

MULTIPLEX_METHOD = "/batchyard.v1.SchedulerService/Multiplex"

_CALLS_MAX = 256  # per message
_BYTES_MAX = 64 * 1024  # per message, unless one call alone is larger
_WINDOW_BEFORE_OPENED = 256  # calls outstanding until the server names its limit
_FAREWELL_S = 1.0  # how long a finished stream may take to end


class Link:
    """Carries calls until it ends; then `ended(link, error)` is called once, error None: by us."""

    def __init__(
        self,
        rpc: grpc.aio.StreamStreamCall[bytes, MultiplexResponse],
        *,
        peer: str,
        message_bytes_max: int,
        going_away: Callable[[Link], None],
        ended: Callable[[Link, BatchyardError | None], None],
    ) -> None:
        self.opened = False
        self.message_bytes_max = message_bytes_max
        self._rpc = rpc
        self._peer = peer
        self._going_away = going_away
        self._ended = ended
        self._backlog: deque[Call] = deque()
        self._sent: dict[int, Call] = {}
        self._cancels: list[int] = []
        self._cancelled: set[int] = set()  # cancelled here, result not seen yet
        self._window = _WINDOW_BEFORE_OPENED
        self._finishing = False
        self._stopped = False
        self._aborted = False
        self._wake: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._writer = self._loop.create_task(self._write(), name="batchyard-writer")
        self._reader = self._loop.create_task(self._run(), name="batchyard-reader")

    def submit(self, call: Call) -> None:
        """Sends `call` with the next message."""
        call.carrier = self
        self._backlog.append(call)
        self._notify()

    def cancel(self, call: Call) -> None:
        if self._sent.pop(call.call_id, None) is not None:
            self._cancelled.add(call.call_id)
            self._cancels.append(call.call_id)
        else:
            # Not sent yet: the writer passes over it, because nothing carries it now.
            call.carrier = None
        self._notify()

    def take_backlog(self) -> list[Call]:
        """The calls that were never sent; they are this link's no longer."""
        calls = [call for call in self._backlog if call.carrier is self]
        self._backlog.clear()
        return calls

    def take_all(self) -> list[Call]:
        """All calls without a result, in the order in which they were made."""
        calls = [*self._sent.values(), *self.take_backlog()]
        self._sent.clear()
        return sorted(calls, key=lambda call: call.call_id)

    def finish(self) -> None:
        """No more calls will come; the link ends when all are answered."""
        self._finishing = True
        self._notify()

    async def close(self) -> None:
        """Says good-bye and waits for the end, but not for long."""
        self.finish()
        await asyncio.wait([self._reader], timeout=_FAREWELL_S)
        if not self._reader.done():
            self._abort()
            await asyncio.wait([self._reader])

    def _abort(self) -> None:
        self._aborted = True
        self._rpc.cancel()

    # The writer.

    async def _write(self) -> None:
        try:
            data = _open_frame() + self._gather()
            while not self._stopped:
                if data:
                    await self._rpc.write(data)
                elif self._finishing and not self._sent and not self._backlog:
                    await self._rpc.write(MultiplexRequest(done=True).SerializeToString())
                    await self._rpc.done_writing()
                    return
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
                data = self._gather()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended; the reader knows why

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _gather(self) -> bytes:
        """The next message; empty: there is nothing to send."""
        pieces: list[bytes] = []
        size = 0
        room = min(_CALLS_MAX, self._window - len(self._sent) - len(self._cancelled))
        backlog = self._backlog
        while backlog and len(pieces) < room and size < _BYTES_MAX:
            call = backlog.popleft()
            if call.carrier is not self:
                continue  # cancelled before it was sent
            piece = call.frame.SerializeToString()
            if size and size + len(piece) > _BYTES_MAX:
                backlog.appendleft(call)
                break
            if len(piece) > self.message_bytes_max:
                call.fail(_too_large(len(piece), self.message_bytes_max))
                continue
            self._sent[call.call_id] = call
            pieces.append(piece)
            size += len(piece)
        if self._cancels:
            pieces.append(MultiplexRequest(cancel_call_ids=self._cancels).SerializeToString())
            self._cancels.clear()
        return b"".join(pieces)

    # The reader.

    async def _run(self) -> None:
        error: BatchyardError | None = None
        try:
            async for message in self._rpc:
                self._handle(message)
        except grpc.aio.AioRpcError as rpc_error:
            error = from_rpc_error(rpc_error, peer=self._peer)
            error.__cause__ = rpc_error
        except ProtocolError as violation:
            error = violation
            self._rpc.cancel()
        except Exception as fault:  # bytes that are no message; calls must not wait for ever
            error = ProtocolError(f"cannot read the stream: {fault!r}")
            error.__cause__ = fault
            self._rpc.cancel()
        except asyncio.CancelledError:
            # Also how grpc.aio tells that the server ended the stream with CANCELLED.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._abort()
        if error is None and not self._aborted and (self._sent or self._backlog):
            error = _ended_early(self._peer)
        self._stopped = True
        self._notify()
        self._writer.cancel()
        await asyncio.wait([self._writer])
        self._ended(self, error)

    def _handle(self, message: MultiplexResponse) -> None:
        """Everything of one message, in the order that the protocol gives."""
        if message.HasField("opened"):
            self._take_limits(message)
        if message.max_outstanding:
            self._window = message.max_outstanding
        for accepted in message.accepted:
            self._tell(accepted.call_id, "accepted", accepted)
        for started in message.started:
            self._tell(started.call_id, "started", started)
        if message.HasField("deltas"):
            self._handle_deltas(message.deltas)
        self._handle_results(message)
        if message.going_away and not self._finishing:
            self._going_away(self)
        if self._backlog or self._finishing:
            self._notify()

    def _take_limits(self, message: MultiplexResponse) -> None:
        self.opened = True
        if not message.max_outstanding:
            self._window = 2**31  # the server names no limit
        limit = message.opened.limits.max_message_bytes
        if limit:
            self.message_bytes_max = min(self.message_bytes_max, limit)

    def _handle_deltas(self, deltas: TokenDeltas) -> None:
        for extra in deltas.extras:
            self._tell(extra.id, "extra", extra)
        ids = list(deltas.ids)
        if len(ids) != len(deltas.offsets):
            raise ProtocolError(
                f"deltas have {len(ids)} ids for {len(deltas.offsets)} offsets",
                reason="PROTOCOL_VIOLATION",
            )
        sent = self._sent
        for delta in read_deltas(deltas):
            call = sent.get(ids[delta[0]])
            if call is not None:
                try:
                    call.delta(delta)
                except ProtocolError as violation:
                    self._give_up(call, violation)

    def _handle_results(self, message: MultiplexResponse) -> None:
        results = message.results
        alone = len(results) == 1
        for item in results:
            call = self._sent.pop(item.call_id, None)
            if call is None:
                self._cancelled.discard(item.call_id)
                continue
            result = item.result
            if not alone:
                # A part of a message keeps the memory of the whole message; a copy does not.
                result = InferenceResult()
                result.CopyFrom(item.result)
            call.finish(result)

    def _tell(self, call_id: int, method: str, event: Any) -> None:
        call = self._sent.get(call_id)
        if call is not None:
            try:
                getattr(call, method)(event)
            except ProtocolError as violation:
                self._give_up(call, violation)

    def _give_up(self, call: Call, violation: ProtocolError) -> None:
        """One call's output is broken; its neighbours go on."""
        self.cancel(call)
        violation.request_id = call.request_id
        call.fail(violation)


def _open_frame() -> bytes:
    opening = MultiplexOpen(client_version=f"python/{version()}")
    return MultiplexRequest(open=opening).SerializeToString()


def _too_large(size: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"the request has {size} bytes, the limit of one message is {limit};"
        " hold large data elsewhere and send a PayloadRef",
        reason="REQUEST_TOO_LARGE",
        metadata={"limitBytes": str(limit)},
    )


def _ended_early(peer: str) -> BatchyardError:
    return Unavailable(f"{peer} ended the stream before all answers were there", retryable=True)
