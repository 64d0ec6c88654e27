"""A real gRPC server that answers as its test says: the scheduler's and the admin service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import admin_service_pb2_grpc as admin_grpc
from batchyard.v1 import scheduler_service_pb2 as scheduler
from batchyard.v1 import scheduler_service_pb2_grpc as scheduler_grpc

Answer = Callable[[Any], Any]


class Refusal(Exception):
    """An answer that is a rich error."""

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.code = code
        status = status_pb2.Status(code=code.value[0], message=message)
        info = error_details_pb2.ErrorInfo(reason=reason, domain="batchyard.dev", metadata=metadata)
        status.details.add().Pack(info)
        self.details = status.SerializeToString()


class Scripted:
    """Answers each method with what `on(METHOD, answer)` set; `calls` keeps the requests.

    An answer is a message, a list of messages (a stream), an exception to raise, or a function of
    the request that returns one of these. A stream that ends with `HANG` stays open.
    """

    HANG = object()

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.calls: list[tuple[str, Any]] = []
        self._cancelled: dict[str, threading.Event] = {}
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def on(self, method: str, answer: Any) -> Scripted:
        self.answers[method] = answer
        return self

    def requests(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]

    def expect_cancelled(self, method: str) -> None:
        """Wait until the client has left a call of `method` that hung."""
        assert self._cancel_of(method).wait(10), f"{method} was not cancelled"

    def _cancel_of(self, method: str) -> threading.Event:
        return self._cancelled.setdefault(method, threading.Event())

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(None), self._loop).result(10)
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        self._server = grpc.aio.server()
        scheduler_grpc.add_SchedulerServiceServicer_to_server(
            _scripted(scheduler_grpc.SchedulerServiceServicer, self, scheduler), self._server
        )
        admin_grpc.add_AdminServiceServicer_to_server(
            _scripted(admin_grpc.AdminServiceServicer, self, admin), self._server
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.address = f"127.0.0.1:{port}"

    async def _finish(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def answer(self, method: str, request: Any, context: Any) -> AsyncIterator[Any]:
        self.calls.append((method, request))
        answer = self.answers.get(method)
        if answer is None:
            refusal = Refusal(
                grpc.StatusCode.UNIMPLEMENTED,
                "UNSUPPORTED_FEATURE",
                f"{method} is not built",
                feature=method,
            )
            await refuse(context, refusal)
        answer = answer(request) if callable(answer) else answer
        for item in answer if isinstance(answer, list) else [answer]:
            if item is Scripted.HANG:
                try:
                    await asyncio.Event().wait()
                finally:
                    self._cancel_of(method).set()
            if isinstance(item, Refusal):
                await refuse(context, item)
            yield item


async def refuse(context: Any, refusal: Refusal) -> None:
    context.set_trailing_metadata((("grpc-status-details-bin", refusal.details),))
    await context.abort(refusal.code, str(refusal))


def _scripted(servicer: type, script: Scripted, module: Any) -> Any:
    """A servicer whose every method asks the script."""
    (service,) = module.DESCRIPTOR.services_by_name.values()

    def unary(name: str) -> Any:
        async def call(self: Any, request: Any, context: Any) -> Any:
            async for message in script.answer(name, request, context):
                return message
            return None

        return call

    def stream(name: str) -> Any:
        async def call(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
            async for message in script.answer(name, request, context):
                yield message

        return call

    methods = {
        method.name: (stream if method.server_streaming else unary)(method.name)
        for method in service.methods
    }
    return type(f"Scripted{servicer.__name__}", (servicer,), methods)()
