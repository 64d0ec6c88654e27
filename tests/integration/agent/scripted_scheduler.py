"""A scheduler that does as a test tells it: a real gRPC server on loopback, a session a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types

TERM = 7
WAIT_S = 10.0
END = object()


def dispatch_id(counter: int, term: int = TERM) -> int:
    """An id as a scheduler mints it."""
    return term << 40 | counter


def text_item(counter: int, prompt: str = "hi", **fields: Any) -> node.DispatchItem:
    """An item with a text prompt."""
    fields = {"attempt": 1, "stream": True, "request_id": f"r{counter}", **fields}
    return node.DispatchItem(
        dispatch_id=fields.pop("dispatch_id", dispatch_id(counter)),
        request=inference.InferenceRequest(text=inference.TextInput(prompt=prompt)),
        charge=node.Charge(inputs=1),
        output_id=dispatch_id(1000 + counter),
        **fields,
    )


class ScriptedSession:
    """One stream, with all that the agent sent on it."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.hello = node.Hello()
        self.messages: list[node.ConnectRequest] = []
        self.results: list[node.ItemResult] = []
        self.credits: dict[str, int] = {}
        self.deltas: list[tuple[int, int, str]] = []  # id, offset, text
        self.closed = False  # by the agent
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._changed = asyncio.Event()

    def text(self, counter: int) -> str:
        """All output of an item on this session, joined; offsets must be dense."""
        parts = [(o, t) for i, o, t in self.deltas if i == dispatch_id(counter)]
        for (offset, text), (following, _) in pairwise(parts):
            assert following == offset + len(text.encode()), "a gap or a repeat"
        return "".join(text for _, text in parts)

    def result(self, counter: int) -> node.ItemResult | None:
        """The result of an item on this session."""
        found = [r for r in self.results if r.dispatch_id == dispatch_id(counter)]
        assert len(found) <= 1, "two results for one item"
        return found[0] if found else None

    @property
    def reports(self) -> list[node.NodeReport]:
        """All reports, oldest first."""
        return [m.report for m in self.messages if m.HasField("report")]

    def send(self, **parts: Any) -> None:
        """Send a message of these parts."""
        self._outgoing.put_nowait(node.ConnectResponse(**parts))

    def send_raw(self, data: bytes) -> None:
        """Send a message that the generated code would not make."""
        self._outgoing.put_nowait(data)

    def welcome(self, *, term: int = TERM, **fields: Any) -> None:
        """Accept the Hello, with short intervals."""
        fields = {
            "cluster_id": "c",
            "session_epoch": term << 40 | 1,
            "protocol_version": 1,
        } | fields
        for name in ("heartbeat_interval", "report_interval"):
            fields.setdefault(name, Duration(nanos=100_000_000))
        self.send(welcome=node.Welcome(term=term, **fields))

    def dispatch(self, *items: node.DispatchItem, **fields: Any) -> None:
        """Send one batch."""
        fields = {"batch_id": "b", "engine_id": "simulated", "model": "simulated", **fields}
        self.send(batches=[node.DispatchBatch(items=items, **fields)])

    def hang_up(self) -> None:
        """Close the stream in good order."""
        self._outgoing.put_nowait(END)

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream with a status."""
        self._outgoing.put_nowait((code, details))

    async def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Wait until the condition holds, looking after each message."""
        found: Any = None
        try:
            async with asyncio.timeout(WAIT_S):
                while not (found := condition()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            tail = "\n".join(str(message) for message in self.messages[-3:])
            raise AssertionError(
                f"waited in vain{what and f' for {what}'}; closed: {self.closed}, "
                f"{len(self.messages)} messages, the last ones:\n{tail}"
            ) from None
        return found

    def take(self, message: node.ConnectRequest) -> None:
        """Note a message of the agent."""
        self.messages.append(message)
        self.results.extend(message.results)
        for credit in message.credits:
            assert credit.total_inputs >= self.credits.get(credit.engine_id, 0), "a total fell"
            self.credits[credit.engine_id] = credit.total_inputs
        columns = message.deltas
        self.deltas.extend(zip(columns.ids, columns.offsets, columns.texts, strict=True))
        self.notify()

    def notify(self) -> None:
        """Something changed."""
        self._changed.set()

    async def outgoing(self) -> AsyncIterator[Any]:
        """What the test wants sent, until the end."""
        while (part := await self._outgoing.get()) is not END:
            if isinstance(part, tuple):
                await self.context.abort(*part)
            yield part


class ScriptedScheduler:
    """Listens on loopback, port 0."""

    def __init__(self) -> None:
        self.sessions: asyncio.Queue[ScriptedSession] = asyncio.Queue()
        self.address = ""
        self._server: Any = None

    async def start(self, port: int = 0) -> None:
        """Begin to listen."""
        self._server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._connect,
            request_deserializer=node.ConnectRequest.FromString,
            response_serializer=_serialize,
        )
        service = grpc.method_handlers_generic_handler(
            "batchyard.v1.NodeService", {"Connect": handler}
        )
        self._server.add_generic_rpc_handlers((service,))
        port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """End every session at once."""
        await self._server.stop(0)

    async def session(self, *, welcome: bool = True, **fields: Any) -> ScriptedSession:
        """The next session, its Hello read, and (unless told not to) welcomed."""
        async with asyncio.timeout(WAIT_S):
            session = await self.sessions.get()
        if welcome:
            session.welcome(**fields)
        return session

    async def _connect(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        session = ScriptedSession(context)
        first = await anext(requests)
        assert first.HasField("hello")
        session.hello = first.hello
        self.sessions.put_nowait(session)
        reading = asyncio.create_task(self._read(requests, session))
        try:
            async for part in session.outgoing():
                yield part
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, requests: Any, session: ScriptedSession) -> None:
        async for message in requests:
            session.take(message)
        session.closed = True
        session.notify()
        session.hang_up()


def _serialize(part: Any) -> bytes:
    return part if isinstance(part, bytes) else part.SerializeToString()


def cancel(*counters: int, reason: Any = types.ERROR_REASON_CANCELLED_BY_CLIENT) -> node.Cancel:
    """A Cancel for these items."""
    return node.Cancel(dispatch_ids=[dispatch_id(n) for n in counters], reason=reason)
