"""A whole scheduler for its clients, on loopback: real core, driver, ports and servers, and agents
with the simulated engine in the test's own process.

`WAYS` are the ways in. `World.begin` starts a call in any of them and gives an `Exchange`, which
can be cancelled and ends with an `Answer`, alike for all.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batchyard.v1 import inference_pb2, scheduler_service_pb2
from node_agent import config_sources
from node_agent.app import App
from node_agent.core import Limits as AgentLimits
from node_agent.engines.registry import build_engine
from node_agent.hardware import FixedProbe, HardwareSample
from scheduler_service.clock import Clock
from scheduler_service.core import CoreSettings, Scheduler, invariants
from scheduler_service.core.commands import CloseSession, FinishRequest
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.state import State
from scheduler_service.driver import Driver
from scheduler_service.effects import Effects
from scheduler_service.policies import build
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.rpc import node
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.intake import Intake
from scheduler_service.rpc.node_settings import Identity as SessionIdentity
from scheduler_service.rpc.node_settings import NodePortSettings
from scheduler_service.rpc.ports import NoTracer
from scheduler_service.rpc.results import ResultBuilder
from scheduler_service.rpc.scheduler import SERVICE, Identity, SchedulerPort
from scheduler_service.rpc.traced_calls import untraced
from scheduler_service.rpc.validate import Limits
from scheduler_service.servers import Servers, Service
from scheduler_service.telemetry.tracer import RequestTracer
from tests.integration.scheduler.callers import (
    WAIT_S,
    Answer,
    Condition,
    Exchange,
    Multiplex,
    SingleExchange,
)

SOON_S = 1.0  # within which a cancel must free all there is
MODEL = "simulated"
TERM = 3
WAYS = ("generate", "generate_stream", "multiplex", "multiplex_stream")
STREAMS = ("generate_stream", "multiplex_stream")
SINGLE = ("generate", "generate_stream")


def prompt(text: str = "hello", **fields: Any) -> inference_pb2.InferenceRequest:
    """A request for the simulated model."""
    fields.setdefault("model", MODEL)
    return inference_pb2.InferenceRequest(text=inference_pb2.TextInput(prompt=text), **fields)


def seconds(length: float) -> Duration:
    """A length for the wire."""
    return Duration(seconds=int(length // 1), nanos=int(length % 1 * 1e9))


class Agent:
    """An agent as a task of this process."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.task: asyncio.Task[int] = asyncio.create_task(app.run())

    @property
    def held(self) -> int:
        """Items that its engines have."""
        return len([held for held in self.app.core.items.values() if held.outcome is None])

    async def stop(self) -> None:
        for _ in range(2):  # the second ends the drain at once
            self.app.on_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            await self.task


class World:
    """The scheduler, its agents, and a client's connection."""

    def __init__(self, *, limits: Limits | None = None, task_types: TaskTypes | None = None,
                 aliases: dict[str, str] | None = None, traced: bool = False,
                 **settings: Any) -> None:  # fmt: skip
        """`traced`: spans of sampled requests come to `spans`."""
        self.clock = Clock()
        self.limits = limits or Limits()
        self.agents: list[Agent] = []
        self.channels: list[grpc.aio.Channel] = []
        self.streams: list[Multiplex] = []
        self._changed = asyncio.Event()
        self.effects = Effects(ResultBuilder(self.clock))
        core = CoreSettings(term=TERM, check_every=1, **settings)
        self.driver = Driver(
            Scheduler(core, build()),
            clock=self.clock,
            execute=self.effects.execute,
            observers=[lambda _records: self._changed.set()],
            on_fault=self._start_anew,
        )
        self.book = self.effects.book = Book(self.driver, self.clock)
        converter = Converter(limits=self.limits, task_types=task_types or TaskTypes(),
                              aliases=aliases or {}, max_attempts=3)  # fmt: skip
        self.spans = InMemorySpanExporter()
        tracer = self._tracer() if traced else None
        self.intake = Intake(
            book=self.book, converter=converter, clock=self.clock, limits=self.limits,
            on_entry=tracer.on_entry if tracer is not None else None,
        )  # fmt: skip
        identity = Identity(version="1.2.3", instance_id="i1", cluster_id="c1", term=TERM)
        self.port = SchedulerPort(
            intake=self.intake, identity=identity, state=lambda: self.state,
            begin_call=tracer.begin_call if tracer is not None else untraced,
        )  # fmt: skip
        self.node_port = node.NodePort(
            driver_post=self.driver.post,
            relay=lambda: self.driver.scheduler.relay,
            sessions=self.effects.sessions,
            settings=NodePortSettings(),
            identity=SessionIdentity("c1", TERM),
            clock=self.clock,
            tracer=tracer or NoTracer(),
            version="1.2.3",
        )
        self.servers = Servers()

    def _tracer(self) -> RequestTracer:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        tracer = RequestTracer(provider, self.clock, lambda: self.state)
        self.driver.observe(tracer)
        return tracer

    @property
    def state(self) -> State:
        return self.driver.scheduler.state

    async def start(self) -> None:
        await self.servers.start(
            "127.0.0.1",
            [
                Service(SERVICE, self.port.handlers(), 0),
                Service(node.SERVICE, self.node_port.handlers(), 0),
            ],
            self.limits.max_message_bytes,
        )
        self.channel = self.connect()

    async def stop(self) -> None:
        await asyncio.gather(*(stream.close() for stream in self.streams))
        for channel in self.channels:
            await channel.close()
        await asyncio.gather(*(agent.stop() for agent in self.agents))
        await self.node_port.close(Reason.SCHEDULER_DRAINING, "over", reconnect=False)
        self.driver.close()
        await self.servers.stop(None)

    def _start_anew(self, fault: BaseException) -> Scheduler:
        """As the composition root does it."""
        for (node_id, epoch), session in list(self.effects.sessions.items()):
            session.close(CloseSession(node_id, epoch, Reason.INTERNAL, "lost", reconnect=True))
        for entry in list(self.book.entries.values()):
            ending = FinishRequest(entry.request, Outcome.FAILED, Reason.INTERNAL, repr(fault))
            self.effects.execute([ending])
        return self.driver.scheduler.successor()

    # The client's side.

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.servers.ports[SERVICE]}"

    def connect(self, **options: Any) -> grpc.aio.Channel:
        """Another connection."""
        chosen = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        chosen += [(f"grpc.{name}", value) for name, value in options.items()]
        channel = grpc.aio.insecure_channel(self.address, options=chosen)
        self.channels.append(channel)
        return channel

    def method(self, name: str, kind: str = "unary_unary", *, raw: bool = False) -> Any:
        """A method of the service by its public messages, or on bytes."""
        make = getattr(self.channel, kind)
        if raw:
            return make(f"/{SERVICE}/{name}")
        pb = scheduler_service_pb2
        return make(
            f"/{SERVICE}/{name}",
            request_serializer=getattr(pb, f"{name}Request").SerializeToString,
            response_deserializer=getattr(pb, f"{name}Response").FromString,
        )

    async def multiplex(self, *, reads: bool = True, **options: Any) -> Multiplex:
        """A stream that is open."""
        stream = Multiplex(self.connect(**options) if options else self.channel, reads=reads)
        self.streams.append(stream)
        await stream.open(client_version="test/1")
        return stream

    async def begin(
        self,
        way: str,
        request: inference_pb2.InferenceRequest,
        *,
        detach_grace: Duration | None = None,
        attach: scheduler_service_pb2.AttachPoint | None = None,
        deadline_s: float | None = None,
    ) -> Exchange:
        """Start a call."""
        extra: dict[str, Any] = {"detach_grace": detach_grace}
        if way in STREAMS:
            extra["attach"] = attach
        if way in SINGLE:
            streams = way == "generate_stream"
            name, kind = (
                ("GenerateStream", "unary_stream") if streams else ("Generate", "unary_unary")
            )
            message = getattr(scheduler_service_pb2, f"{name}Request")(request=request, **extra)
            call = self.method(name, kind)(message, timeout=deadline_s)
            return SingleExchange(call, streams)
        if not self.streams or self.streams[-1].ended.is_set():
            await self.multiplex()
        streams = way == "multiplex_stream"
        (exchange,) = await self.streams[-1].start(request, stream=streams, **extra)
        return exchange

    async def ask(
        self, way: str, request: inference_pb2.InferenceRequest, **options: Any
    ) -> Answer:
        """A call and its end."""
        return await (await self.begin(way, request, **options)).wait()

    # Nodes.

    async def add_agent(self, node_id: str = "n1", **options: Any) -> Agent:
        """Start an agent with a simulated engine of these options, and wait until it is healthy."""
        known = len(self.state.nodes)
        flags = {
            "node_id": node_id,
            "scheduler": {"address": f"127.0.0.1:{self.servers.ports[node.SERVICE]}"},
            "reconnect": {"first": "20ms", "longest": "100ms"},
            "engines": [{"kind": "simulated", **options}],
        }
        loaded = config_sources.load(path=None, environ={"HOME": "/nowhere"}, flags=flags)
        engine = build_engine(engine_id="simulated", kind="simulated", options=options)
        probe = FixedProbe(HardwareSample(cpu_utilization=0.5, memory_utilization=0.25))
        app = App(
            loaded,
            {"simulated": engine},
            environ={},
            make_probe=lambda: probe,
            say=lambda _line: None,
            limits=AgentLimits(linger_ns=50_000_000),
        )
        agent = Agent(app)
        self.agents.append(agent)
        await self.until(lambda: len(self.state.nodes) > known and self.can_work(node_id))
        return agent

    def can_work(self, node_id: str) -> bool:
        engines = self.state.nodes[node_id].engines.values() if node_id in self.state.nodes else ()
        return any(engine.credit_inputs for engine in engines)

    # What is left, and waiting for it.

    async def until(self, condition: Condition, within_s: float = WAIT_S) -> None:
        """Something that happened in the scheduler made the condition true."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def leftovers(self) -> dict[str, object]:
        """Every gauge that is not back at nothing, with what it shows."""
        state = self.state
        invariants.check(state)
        engines = [engine for n in state.nodes.values() for engine in n.engines.values()]
        shown: dict[str, object] = {
            "requests": list(state.requests),
            "queued": sum(len(pool.queue) for pool in state.pools.values()),
            "waiting_bytes": state.waiting_bytes,
            "timers": [key for key in state.timers._where if type(key) is int],
            "lanes": list(state.relay.lanes),
            "in_flight": [list(n.in_flight) for n in state.nodes.values() if n.in_flight],
            "in_flight_inputs": sum(engine.in_flight_inputs for engine in engines),
            "in_flight_items": sum(engine.in_flight_items for engine in engines),
            "open_batches": [b for engine in engines for b in engine.open_batches],
            "entries": list(self.book.entries),
            "ids": list(self.book._by_id),
            "held": sum(agent.held for agent in self.agents),
        }
        return {name: left for name, left in shown.items() if left}

    async def settled(self, within_s: float = SOON_S) -> None:
        """All gauges are back at nothing, soon."""
        try:
            await self.until(lambda: not self.leftovers(), within_s)
        except TimeoutError:
            raise AssertionError(f"after {within_s} s: {self.leftovers()}") from None
        totals = self.state.totals
        assert totals.received == sum(totals.outcomes.values())

    def running(self) -> int:
        """Requests that an engine has begun."""
        return sum(
            attempt.running for r in self.state.requests.values() for attempt in r.live.values()
        )

    def queued(self) -> int:
        return sum(len(pool.queue) for pool in self.state.pools.values())


class BadWords(logging.Handler):
    """Keeps what must never be logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if _is_of_an_earlier_test(record):
            return
        if record.exc_info or record.levelno >= logging.ERROR:
            self.lines.append(self.format(record))


def _is_of_an_earlier_test(record: logging.LogRecord) -> bool:
    """gRPC shares one completion queue between the loops of a process: what comes late for the
    loop of a test that is over is told in the next one's. Services have one loop.
    """
    error = record.exc_info[1] if record.exc_info else None
    late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return late and "PollerCompletionQueue" in record.getMessage()


@asynccontextmanager
async def running_world(*, quiet: bool = True, **options: Any) -> AsyncIterator[World]:
    """A world that works. `quiet`: nothing may be logged as an error, and no traceback."""
    heard = BadWords()
    logging.getLogger().addHandler(heard)
    world = World(**options)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()
        logging.getLogger().removeHandler(heard)
    if quiet:
        assert not heard.lines, "\n".join(heard.lines)
