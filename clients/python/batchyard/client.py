"""The client for code without an event loop: the async one, in one background thread."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, Unpack

from batchyard.admin import Admin
from batchyard.async_admin import AsyncAdmin
from batchyard.async_client import AsyncClient
from batchyard.background import BackgroundLoop, SyncIterator
from batchyard.channel import Tls
from batchyard.dispatcher import Transport
from batchyard.durations import Duration
from batchyard.jobs import Jobs
from batchyard.output import StreamEvent
from batchyard.request import Message, RequestOptions
from batchyard.results import Result
from batchyard.retry import OnRetry
from batchyard.stream import AsyncStream
from batchyard.v1 import GetServerInfoResponse, InferenceRequest, ModelInfo

__all__ = ["Client", "Stream"]


class Client:
    """A client of one scheduler, for any number of threads. It connects when it is first used.

        with Client("localhost:7611") as client:
            result = client.generate("Summarise ...", model="small", timeout="30s")
            print(result.text, result.usage.output_tokens)
            for event in client.stream("Tell me a story", model="small"):
                print(event.text, end="")

    The arguments are those of AsyncClient. Create clients after a fork, never before. `on_retry`
    is called in the client's own thread and must not call the client.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
        tls: Tls = None,
        transport: Transport = "auto",
        admin_address: str | None = None,
        retries: int = 3,
        on_retry: OnRetry | None = None,
        deadline_grace: Duration = "500ms",
        detach_grace: Duration = "500ms",
        reconnect_timeout: Duration = "15s",
    ) -> None:
        self._core = AsyncClient(
            address,
            api_key=api_key,
            tenant=tenant,
            model=model,
            tls=tls,
            transport=transport,
            admin_address=admin_address,
            retries=retries,
            on_retry=on_retry,
            deadline_grace=deadline_grace,
            detach_grace=detach_grace,
            reconnect_timeout=reconnect_timeout,
        )
        self._loop = BackgroundLoop()
        self._admin: Admin | None = None
        # Also at the interpreter's exit and when the client is forgotten.
        self._finish = weakref.finalize(self, self._loop.finish, self._core.close)

    @property
    def address(self) -> str:
        return self._core.address

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client holds a connection and cannot be pickled; create one in each process"
        )

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        request: InferenceRequest | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """One request, its whole answer. Ctrl-C cancels it on the server. See AsyncClient."""
        return self._loop.run(
            self._core.generate(prompt, messages=messages, request=request, **options)
        )

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        request: InferenceRequest | None = None,
        restarts: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> Stream:
        """One request, its output as it comes; leaving the loop cancels. See AsyncClient.

        for event in client.stream("Why?", model="small"):
            print(event.text, end="")
        """

        async def make() -> AsyncStream:
            return self._core.stream(
                prompt, messages=messages, request=request, restarts=restarts, **options
            )

        return Stream(self._loop, self._loop.run(make()))

    def list_models(self) -> Iterator[ModelInfo]:
        """What the scheduler serves, page by page."""
        return SyncIterator(self._loop, self._core.list_models())

    def server_info(self) -> GetServerInfoResponse:
        """Versions, features and limits."""
        return self._loop.run(self._core.server_info())

    def cancel(
        self, request_ids: str | Iterable[str], *, reason: str = "", tenant: str | None = None
    ) -> list[str]:
        """Cancels requests by id; returns those that were found and not yet finished."""
        return self._loop.run(self._core.cancel(request_ids, reason=reason, tenant=tenant))

    @property
    def jobs(self) -> Jobs:
        """Stored work: many requests that nobody waits for."""
        return Jobs(self._core.jobs, self._loop)

    @property
    def admin(self) -> Admin:
        """What operators call, at the admin address."""
        if self._admin is None:

            async def make() -> AsyncAdmin:
                return self._core.admin

            self._admin = Admin(core=self._loop.run(make()), loop=self._loop)
        return self._admin

    def close(self) -> None:
        """Cancels what is in flight, on the server too, and ends the thread. Idempotent."""
        self._finish()


class Stream:
    """An iterator of StreamEvents, and a context manager. Nothing is sent before its use.

    Leaving the loop, leaving the `with` block, `cancel()` and Ctrl-C cancel the request on the
    server. A stream is for one consumer.
    """

    def __init__(self, loop: BackgroundLoop, core: AsyncStream) -> None:
        self._loop = loop
        self._core = core
        self._ready: deque[StreamEvent] = deque()

    @property
    def request_id(self) -> str:
        return self._core.request_id

    @property
    def text(self) -> str:
        """All text of choice 0 so far; a restart clears it."""
        return self._core.text

    @property
    def done(self) -> bool:
        return self._core.done

    @property
    def result(self) -> Result:
        """The end of the request. Before the end RuntimeError; after a failure its error."""
        return self._core.result

    @property
    def queue_position(self) -> int | None:
        """Requests that would have gone first when it was accepted; an estimate."""
        return self._core.queue_position

    @property
    def node_id(self) -> str:
        """Where it runs; empty: not yet."""
        return self._core.node_id

    @property
    def model(self) -> str:
        """The model that runs; empty: not yet."""
        return self._core.model

    @property
    def degraded(self) -> bool:
        return self._core.degraded

    @property
    def attempt(self) -> int:
        """Number of the node that runs it, from 1; 0: not yet."""
        return self._core.attempt

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[StreamEvent]:
        return _Loop(self)

    def __next__(self) -> StreamEvent:
        if not self._ready:
            try:
                self._ready.extend(self._loop.run(self._core.pull()))
            except KeyboardInterrupt:
                self.cancel()
                raise
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def wait(self) -> Result:
        """Reads to the end, throws the events away and returns the result."""
        self._ready.clear()
        try:
            return self._loop.run(self._core.wait())
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Stops the request, here at once and on the server with the next message. Idempotent."""
        self._ready.clear()
        if not self._core.done:
            with contextlib.suppress(RuntimeError):  # the client is closed: that cancelled it
                self._loop.run(_cancel(self._core))

    def cancel_soon(self) -> None:
        """`cancel()` without waiting."""
        self._core.cancel_soon()

    def __del__(self) -> None:
        self._core.cancel_soon()


class _Loop(Iterator[StreamEvent]):
    """What `for` holds. A `break` lets go of it, and that cancels the request; but not the loop of
    a second consumer, which is refused.
    """

    __slots__ = ("_refused", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._refused = False

    def __next__(self) -> StreamEvent:
        try:
            return next(self._stream)
        except RuntimeError:
            self._refused = True
            raise

    def __del__(self) -> None:
        if not self._refused:
            self._stream.cancel_soon()


async def _cancel(stream: AsyncStream) -> None:
    stream.cancel()
