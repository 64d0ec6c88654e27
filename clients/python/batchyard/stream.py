"""The output of one request, as it comes.

async with client.stream("Tell me", model="small") as stream:
    async for event in stream:
        print(event.text, end="")
print(stream.result.usage)
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING

from batchyard.calls import StreamCall
from batchyard.errors import BatchyardError, Cancelled, StreamInterrupted
from batchyard.output import StreamEvent
from batchyard.results import Result
from batchyard.status import from_result, is_failure

if TYPE_CHECKING:
    from batchyard.dispatcher import Dispatcher

__all__ = ["AsyncStream"]


class AsyncStream:
    """An async iterator of StreamEvents, and a context manager. Nothing is sent before its use.

    Leaving the loop, leaving the `async with` block, `cancel()` and cancelling the task all cancel
    the request on the server. A stream is for one consumer.
    """

    def __init__(self, dispatcher: Dispatcher, call: StreamCall, restarts: bool | None) -> None:
        self._dispatcher = dispatcher
        self._call = call
        self._restarts = restarts  # None: not asked for, and an error where it would matter
        self._ready: deque[StreamEvent] = deque()
        self._context = contextvars.copy_context()
        self._attempt = 0
        self._pulled = False  # somebody waits in `pull`
        self._arrived = False  # something has
        self._delivered = False  # and the consumer has seen it
        self._result: Result | None = None
        self._error: BatchyardError | None = None

    @property
    def request_id(self) -> str:
        return self._call.request_id

    @property
    def text(self) -> str:
        """All text of choice 0 so far; a restart clears it."""
        if self._result is not None:
            return self._result.text
        return self._call.output.text()

    @property
    def done(self) -> bool:
        return self._result is not None or self._error is not None

    @property
    def result(self) -> Result:
        """The end of the request. Before the end RuntimeError; after a failure its error."""
        if self._result is not None:
            return self._result
        if self._error is not None:
            raise self._error
        raise RuntimeError("the stream has not ended; iterate over it, or call wait()")

    @property
    def queue_position(self) -> int | None:
        """Requests that would have gone first when it was accepted; an estimate."""
        return self._call.queue_position

    @property
    def node_id(self) -> str:
        """Where it runs; empty: not yet."""
        return self._call.last_started.node_id if self._call.last_started else ""

    @property
    def model(self) -> str:
        """The model that runs; empty: not yet."""
        return self._call.last_started.model if self._call.last_started else ""

    @property
    def degraded(self) -> bool:
        return self._call.last_started is not None and self._call.last_started.degraded

    @property
    def attempt(self) -> int:
        """Number of the node that runs it, from 1; 0: not yet."""
        return self._call.last_started.attempt if self._call.last_started else 0

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def __aiter__(self) -> _Loop:
        return _Loop(self)

    async def __anext__(self) -> StreamEvent:
        if not self._ready:
            self._ready.extend(await self.pull())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def wait(self) -> Result:
        """Reads to the end, throws the events away and returns the result."""
        self._ready.clear()
        while await self.pull(deliver=False):
            pass
        return self.result

    async def pull(self, *, deliver: bool = True) -> list[StreamEvent]:
        """All events that are there, at least one; none: the end. The other ways use this one.

        Raises:
            RuntimeError: another consumer waits, and only one would ever be woken.
        """
        if self.done:
            return self._nothing_more()
        if self._pulled:
            raise RuntimeError("a stream is for one consumer; another one reads it")
        self._pulled = True
        try:
            if not self._attempt:
                self._begin()
            while True:
                if self.done:  # it was cancelled from elsewhere while this waited
                    return self._nothing_more()
                if self._call.events:
                    events = self._shown()
                    if events:
                        self._deliver(deliver)
                        return events
                elif self._call.settled:
                    if await self._settle():
                        return []
                else:
                    await self._call.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        except BatchyardError as error:
            self._fail(error)
            raise
        finally:
            self._pulled = False

    def cancel(self) -> None:
        """Stops the request, here at once and on the server with the next message. Idempotent."""
        if self.done:
            return
        error = Cancelled(
            "the stream was left before its end",
            reason="CANCELLED_BY_CLIENT",
            request_id=self.request_id,
            partial_text=self.text,
        )
        self._ready.clear()
        self._fail(error)

    def cancel_soon(self) -> None:
        """`cancel()` from any thread, a finaliser included."""
        if self._attempt and not self.done:
            self._dispatcher.call_soon(self.cancel)

    def __del__(self) -> None:
        self.cancel_soon()  # a stream that was read by hand and forgotten

    def _begin(self) -> None:
        self._attempt = 1
        # Below the span that was current when the stream was made, whoever reads it.
        self._context.run(self._dispatcher.trace, self._call, stream=True)
        self._dispatcher.begin(self._call)

    def _nothing_more(self) -> list[StreamEvent]:
        if self._error is not None and self._error.reason != "CANCELLED_BY_CLIENT":
            raise self._error
        return []

    def _shown(self) -> list[StreamEvent]:
        """Takes the events, without the restarts that the caller need not see.

        A restart repeats text. A caller who has seen the old text and did not ask for restarts
        would take both for one answer: for that caller the output is interrupted.
        """
        events = list(self._call.events)
        self._call.events.clear()
        first = self._call.output
        shown: list[StreamEvent] = []
        for event in events:
            if event.restarted:
                if not self._delivered or self._restarts is False:
                    continue
                if self._restarts is None:
                    raise StreamInterrupted(
                        'the output started anew; pass restarts=True or resume="restart" to see it',
                        reason="STREAM_INTERRUPTED",
                        retryable=True,
                        request_id=self.request_id,
                        partial_text=first.text(),
                    )
            shown.append(event)
        return shown

    def _deliver(self, seen: bool) -> None:
        if self._call.span is not None and not self._arrived:
            self._call.span.first_chunk()
        self._arrived = True
        self._delivered = self._delivered or seen

    async def _settle(self) -> bool:
        """True: it is over. False: it is tried again. Raises the final error."""
        call = self._call
        if call.result is not None and not is_failure(call.result):
            self._result = call.output.result(call.result)
            self._dispatcher.end(call, self._result)
            return True
        error = call.error
        if call.result is not None:
            error = from_result(call.result, call.output.text())
        assert error is not None
        error.partial_text = error.partial_text or call.output.text()
        await self._dispatcher.before_retry(call, error, self._attempt)
        if self.done:  # cancelled meanwhile
            return True
        self._attempt += 1
        call.reopen()
        self._dispatcher.resend(call)
        return False

    def _fail(self, error: BatchyardError) -> None:
        if self.done:
            return
        self._error = error
        self._call.cancel()
        self._call.fail(error)  # which wakes who waits for it
        if self._attempt:
            self._dispatcher.end(self._call, error)


class _Loop:
    """What `async for` holds. A `break` lets go of it, and that cancels the request; but not the
    loop of a second consumer, which is refused.
    """

    __slots__ = ("_refused", "_stream")

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream
        self._refused = False

    def __aiter__(self) -> _Loop:
        return self

    async def __anext__(self) -> StreamEvent:
        try:
            return await self._stream.__anext__()
        except RuntimeError:
            self._refused = True
            raise

    def __del__(self) -> None:
        if not self._refused:
            self._stream.cancel_soon()
