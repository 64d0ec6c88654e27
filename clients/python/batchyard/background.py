"""An event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["BackgroundLoop", "SyncIterator"]

T = TypeVar("T")

_INTERRUPT_S = 2.0  # how long an interrupted caller waits for the cancel to leave


class BackgroundLoop:
    """Runs coroutines for any thread. The thread starts with the first and ends with `finish()`."""

    def __init__(self) -> None:
        self._pid = os.getpid()  # a forked child has the loop, but not its thread
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's outcome, run in the caller's context.

        When the caller is interrupted (Ctrl-C), the coroutine is cancelled and given a moment to
        end before the interrupt goes on.
        """
        loop = self._running_loop(coroutine)
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []
        context = contextvars.copy_context()

        def start() -> None:
            task = loop.create_task(coroutine, context=context)
            tasks.append(task)
            task.add_done_callback(lambda task: _settle(done, task))

        loop.call_soon_threadsafe(start)
        try:
            return done.result()
        except BaseException:
            if not done.done():  # not the coroutine's failure: the caller is interrupted
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                concurrent.futures.wait([done], timeout=_INTERRUPT_S)
            raise

    def call_soon(self, action: Callable[[], object]) -> None:
        """Runs `action` in the loop, later; not at all when the loop has ended."""
        if self._loop is not None and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(action)

    def finish(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `last` and ends the thread. Idempotent."""
        if self._pid != os.getpid():
            return
        with self._lock:
            first, self._stopped = not self._stopped, True
            loop, thread = self._loop, self._thread
        if not first or loop is None or thread is None:
            return
        # A forgotten client may be collected in its own thread, which cannot wait for itself.
        loop.call_soon_threadsafe(lambda: loop.create_task(_finish(loop, last)))
        if thread is not threading.current_thread():
            thread.join()

    def _running_loop(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # before the lock, which another thread may have held
            coroutine.close()
            raise RuntimeError("gRPC does not survive a fork; create clients after it")
        problem = ""
        with self._lock:
            if self._stopped:
                problem = "the client is closed"
            elif self._thread is threading.current_thread():
                problem = "a callback of the client must not call it"
            elif self._loop is None:
                self._start()
        if problem:
            coroutine.close()
            raise RuntimeError(problem)
        assert self._loop is not None
        return self._loop

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_on_exception)
        self._thread = threading.Thread(
            target=_serve, args=(self._loop,), name="batchyard-client", daemon=True
        )
        self._thread.start()


class SyncIterator(Iterator[T], Generic[T]):
    """Reads an async iterator from outside its loop. `close()` or dropping it ends it there."""

    def __init__(self, loop: BackgroundLoop, source: AsyncIterator[T]) -> None:
        self._loop = loop
        self._source = source
        self._ended = False

    def __iter__(self) -> SyncIterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        try:
            return self._loop.run(_next(self._source))
        except _End:
            self._ended = True
            raise StopIteration from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends it; the next `next()` finds nothing more."""
        if not self._ended:
            self._ended = True
            self._loop.call_soon(lambda: asyncio.ensure_future(_close(self._source)))

    def __del__(self) -> None:
        self.close()


class _End(Exception):
    """A coroutine cannot raise StopAsyncIteration through a future."""


async def _next(source: AsyncIterator[T]) -> T:
    try:
        return await anext(source)
    except StopAsyncIteration:
        raise _End from None


async def _close(source: AsyncIterator[Any]) -> None:
    closing = getattr(source, "aclose", None)
    if closing is not None:
        with contextlib.suppress(RuntimeError):  # it runs just now, and is being cancelled
            await closing()


def _settle(done: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        done.set_exception(concurrent.futures.CancelledError())
        return
    error = task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def _finish(
    loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    try:
        await last()
    finally:
        loop.stop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        if leftovers:
            loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # grpc.aio in two loops of a process: its poller of one wakes the other for nothing.
    if isinstance(context.get("exception"), BlockingIOError):
        return
    loop.default_exception_handler(context)
