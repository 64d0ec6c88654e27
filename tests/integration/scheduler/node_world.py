"""A scheduler's node side on loopback: real core, driver and port; what is beyond them is written
down. Agents are scripts that speak the public messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core import commands as cmd
from scheduler_service.core.events import Event, SessionBroken
from scheduler_service.core.settings import HealthSettings
from scheduler_service.core.types import SECOND, Attempt, Duration, Node, Request
from scheduler_service.driver import Driver
from scheduler_service.policies import build
from scheduler_service.rpc.node import NodePort
from scheduler_service.rpc.node_settings import Identity, NodePortSettings
from scheduler_service.rpc.node_writer import AgentSession
from scheduler_service.rpc.ports import NodeSession, NoTracer

WAIT_S = 5.0
TERM = 7
METHOD = "/batchyard.v1.NodeService/Connect"


class Entry:
    """One request at the edge; its output is written down."""

    def __init__(self, request_bytes: bytes, on_change: Callable[[], None]) -> None:
        self.request_bytes = request_bytes
        self._on_change = on_change
        self.traceparent = ""
        self.tracestate = ""
        self.sampled = False
        self.rows: list[tuple[int, int, int, str]] = []  # choice, channel, offset, text
        self.extras: list[types_pb2.DeltaExtra] = []
        self.fails = False

    def begin(self, attempt: Attempt, *, restarted: bool = False) -> None:
        """Not looked at here."""

    def deliver(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        if self.fails:
            raise RuntimeError("this sink is broken")
        self.rows.append((choice, channel, offset, text))
        self._on_change()

    def deliver_extra(self, extra: types_pb2.DeltaExtra) -> None:
        self.extras.append(extra)
        self._on_change()

    def delivered_text(self, channel: int) -> str:
        return "".join(text for choice, c, _, text in self.rows if (choice, c) == (0, channel))

    def delivered_token_ids(self) -> Sequence[int]:
        return ()


class World:
    """The service. `port` is under test."""

    def __init__(
        self,
        *,
        hello_timeout: Duration = 10 * SECOND,
        ping_timeout: Duration = 2 * SECOND,
        resume_window: Duration = 2 * SECOND,
    ) -> None:
        self.clock = Clock()
        self.events: list[Event] = []
        self.finished: dict[str, cmd.FinishRequest] = {}
        self.sessions: dict[tuple[str, int], NodeSession] = {}
        self.closed: list[cmd.CloseSession] = []
        self._changed = asyncio.Event()
        self._rids = 0
        health = HealthSettings(resume_window=resume_window, ping_timeout=ping_timeout)
        settings = CoreSettings(term=TERM, check_every=1, health=health)
        self.driver = Driver(
            Scheduler(settings, build()),
            clock=self.clock,
            execute=self._execute,
            on_fault=self._on_fault,
        )
        self.port = NodePort(
            driver_post=self._post,
            relay=lambda: self.driver.scheduler.relay,
            sessions=self.sessions,
            settings=NodePortSettings(hello_timeout=hello_timeout),
            identity=Identity("cluster-1", TERM),
            clock=self.clock,
            tracer=NoTracer(),
            version="1.2.3",
        )
        self.address = ""

    def _on_fault(self, fault: BaseException) -> Scheduler:
        raise fault

    def _post(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()
        self.driver.post(event)

    def _execute(self, commands: Sequence[cmd.Command]) -> None:
        for command in commands:
            self._carry_out(command)
        self._changed.set()

    def _carry_out(self, command: Any) -> None:
        if isinstance(command, cmd.FinishRequest):
            self.finished[command.request.request_id] = command
            return
        session = self.sessions.get((getattr(command, "node_id", ""), getattr(command, "epoch", 0)))
        if session is None:
            return
        match command:
            case cmd.DispatchBatch():
                session.dispatch(command.batch)
            case cmd.CancelAttempts():
                session.cancel(command.dispatch_ids, command.reason)
            case cmd.WelcomeNode():
                session.welcome(command.abandon, command.adopted)
            case cmd.AcknowledgeResults():
                session.acknowledge(command.count)
            case cmd.DrainNode():
                session.drain(command)
            case cmd.PingNode():
                session.ping()
            case cmd.CloseSession():
                self.closed.append(command)
                session.close(command)

    # For tests.

    def submit(self, request_id: str, *, data: bytes = b"", **fields: Any) -> Request:
        """A streaming request for the model "m"."""
        self._rids += 1
        request = Request(
            self._rids,
            request_id,
            fields.pop("model", "m"),
            received_at=self.clock.now(),
            stream=fields.pop("stream", True),
            context=Entry(data, self._changed.set),
            **fields,
        )
        self.driver.submit(request)
        return request

    def node(self, node_id: str = "n1") -> Node:
        return self.driver.scheduler.state.nodes[node_id]

    def session(self, node_id: str = "n1") -> AgentSession:
        found = self.port.session(node_id, self.node(node_id).epoch)
        assert found is not None
        return found

    def breaks(self) -> list[SessionBroken]:
        return [event for event in self.events if isinstance(event, SessionBroken)]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that happens here makes the condition true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Agent:
    """A script's end of one stream."""

    def __init__(self, world: World, channel: grpc.aio.Channel) -> None:
        self.world = world
        self.channel = channel
        self.call: Any = channel.stream_stream(METHOD)()
        self.messages: list[pb.ConnectResponse] = []
        self.answers = True  # pings, as they are read

    async def send(self, **parts: Any) -> None:
        await self.send_raw(pb.ConnectRequest(**parts).SerializeToString())

    async def send_raw(self, data: bytes) -> None:
        await self.call.write(data)

    async def read(self) -> pb.ConnectResponse | None:
        """The next message; None: the stream ended."""
        async with asyncio.timeout(WAIT_S):
            data = await self.call.read()
        if data is grpc.aio.EOF:
            return None
        message = pb.ConnectResponse.FromString(data)
        self.messages.append(message)
        if message.HasField("ping") and self.answers:
            await self.send(pong=pb.Pong(nonce=message.ping.nonce))
        return message

    async def expect(self, field: str) -> Any:
        """Read on to a message with this field, and return the field."""
        while True:
            message = await self.read()
            assert message is not None, f"the stream ended without {field}"
            if any(descriptor.name == field for descriptor, _ in message.ListFields()):
                return getattr(message, field)

    async def join(self, node_id: str = "n1", **fields: Any) -> pb.Welcome:
        """Say hello, take the welcome, give credit for 8."""
        await self.send(hello=hello(node_id, **fields))
        welcome: pb.Welcome = await self.expect("welcome")
        await self.send(credits=[pb.Credit(engine_id="e1", total_inputs=8)])
        return welcome

    async def items(self, count: int) -> list[pb.DispatchItem]:
        """Read until so many items have come."""
        found: list[pb.DispatchItem] = []
        while len(found) < count:
            for batch in await self.expect("batches"):
                found.extend(batch.items)
        return found

    async def goodbye(self) -> pb.Goodbye:
        """The last message. It is answered by half-closing; the stream must end with OK."""
        last: pb.Goodbye = await self.expect("goodbye")
        await self.call.done_writing()
        assert await self.read() is None
        assert await self.call.code() is grpc.StatusCode.OK
        return last

    async def say(self, dispatch_id: int, *texts: str, offset: int = 0) -> None:
        """Send text as deltas, one after another."""
        deltas = types_pb2.TokenDeltas()
        for text in texts:
            deltas.ids.append(dispatch_id)
            deltas.offsets.append(offset)
            deltas.texts.append(text)
            deltas.token_counts.append(1)
            offset += len(text.encode())
        await self.send(deltas=deltas)

    async def finish(self, dispatch_id: int, **fields: Any) -> None:
        fields.setdefault("finish_reason", types_pb2.FINISH_REASON_STOP)
        await self.send(results=[pb.ItemResult(dispatch_id=dispatch_id, attempt=1, **fields)])


def hello(
    node_id: str = "n1",
    *,
    boot_id: str = "boot-1",
    slots: int = 8,
    mode: pb.EngineMode = pb.ENGINE_MODE_CONTINUOUS,
    model: str = "m",
    **fields: Any,
) -> pb.Hello:
    engine = pb.EngineDescriptor(
        engine_id="e1",
        kind="simulated",
        mode=mode,
        slots=slots,
        models=[pb.ModelDescriptor(model=model, streaming=True, resumable=True)],
    )
    fields.setdefault("protocol_version", 1)
    fields.setdefault("descriptor", pb.NodeDescriptor(hostname=node_id, engines=[engine]))
    return pb.Hello(node_id=node_id, boot_id=boot_id, agent_version="9.9", **fields)


@asynccontextmanager
async def running_world(**times: Duration) -> AsyncIterator[World]:
    """Serve. `times`: shorter than usual, where a test waits for them."""
    world = World(**times)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((world.port.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    world.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield world
    finally:
        world.driver.close()
        await server.stop(None)


@asynccontextmanager
async def dialled(world: World) -> AsyncIterator[Agent]:
    """An agent's stream, on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(world.address, options=options) as channel:
        agent = Agent(world, channel)
        yield agent
        agent.call.cancel()
