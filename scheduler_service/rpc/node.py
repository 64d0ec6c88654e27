"""How do node agents talk to the core? `NodeService.Connect`: one stream is one session.

Each stream has one reader and one writer (`node_reader.py`, `node_writer.py`); neither ever waits
for the other, for the core or for another stream.

A session begins with a Hello that holds and ends once, whatever ends it: the agent half-closes,
its connection breaks, it breaks a rule, or the core closes it. From that moment on it is in no
table, the core knows (`SessionBroken`), and what its stream still brings is not read. The stream
itself ends when its Goodbye is out, or its connection gone: gRPC ends no stream before a peer that
does not read has taken what was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import grpc

from batchyard.v1 import types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.events import Event, SessionBroken
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.relay import Relay
from scheduler_service.rpc import status
from scheduler_service.rpc.convert_node import SessionRefused, violation
from scheduler_service.rpc.handover import Handover
from scheduler_service.rpc.node_conduct import InFlight
from scheduler_service.rpc.node_reader import NodeReader
from scheduler_service.rpc.node_settings import Identity, NodePortSettings
from scheduler_service.rpc.node_writer import AgentSession
from scheduler_service.rpc.ports import NodeSession, Tracer
from scheduler_service.security.access import JoinRefused
from scheduler_service.security.principals import Principal, current
from scheduler_service.security.refusals import Place, Refusals
from service_kit import greeting

log = logging.getLogger(__name__)

SERVICE: Final = "batchyard.v1.NodeService"
METHOD: Final = "Connect"
CLOSE_S: Final = 1.0  # for streams to end when the port closes
PART_S: Final = 0.5  # for an agent to close its side after a goodbye
PRICES_MAX: Final = 10_000  # of nodes that are gone: reports still count what ran there
CANCEL_S: Final = 0.05  # for gRPC to say that a stream ended by a broken connection

Context = grpc.aio.ServicerContext[bytes, bytes]


class NodePort:
    """The node-facing service. `sessions` is shared with the effects."""

    def __init__(
        self,
        *,
        driver_post: Callable[[Event], None],
        relay: Callable[[], Relay],
        sessions: dict[tuple[str, int], NodeSession],
        settings: NodePortSettings,
        identity: Identity,
        clock: Clock,
        tracer: Tracer,
        version: str,
        join: Callable[[Principal, str], str] | None = None,
        why_not_join: Callable[[Principal, str], str] = lambda _principal, _node_id: "",
        in_flight: InFlight | None = None,
        refusals: Refusals | None = None,
        handover: Handover | None = None,
    ) -> None:
        """
        Args:
            driver_post: takes events to the core.
            relay: the core's.
            sessions: shared with the effects.
            settings: times and sizes.
            identity: of this scheduler.
            clock: the process's.
            tracer: of spans.
            version: told to agents.
            join: says under which id an agent with that credential is known, or raises
                JoinRefused; None: under the one it gives.
            why_not_join: what `join` would raise, without any effect; empty: nothing.
            in_flight: what a node holds in a session; None: ids of items are not judged.
            handover: recognises work of a scheduler before; None: there is none to adopt.
            refusals: counts agents that are turned away, and what is not theirs to say.
        """
        self.post = driver_post
        self.relay = relay
        self.sessions = sessions
        self.settings = settings
        self.identity = identity
        self.clock = clock
        self.tracer = tracer
        self.version = version
        self._refusals = refusals or Refusals(clock)
        self._join = join
        self._why_not_join = why_not_join
        self.in_flight = in_flight
        self.handover = handover
        self.faults = 0  # exceptions caught: of sinks, and of our own
        self._told: set[str] = set()
        self._prices: dict[str, types_pb2.Money] = {}  # of sessions that are over, the latest last
        self._streams: dict[_Stream, asyncio.Task[Any]] = {}
        self._closed: tuple[types_pb2.Error, bool] | None = None

    def handlers(self) -> grpc.GenericRpcHandler:
        """What a server is to be given. Messages stay bytes: this port parses them itself."""
        method: Any = grpc.stream_stream_rpc_method_handler(self._connect)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    def admit(self, node_id: str) -> str:
        """The id of the agent that says hello as `node_id`: its certificate's identity wins.

        Raises:
            SessionRefused: its credential does not admit that node.
        """
        if self._join is None:
            return node_id
        try:
            return self._join(current(), node_id)
        except JoinRefused as refused:
            raise SessionRefused(
                Reason.PERMISSION_DENIED, str(refused), field="hello.node_id"
            ) from None

    def session(self, node_id: str, epoch: int) -> AgentSession | None:
        """An open session, for operators."""
        found = self.sessions.get((node_id, epoch))
        return found if isinstance(found, AgentSession) else None

    def last_price(self, node_id: str) -> types_pb2.Money | None:
        """What an hour of the node cost when its last session ended; None: not known."""
        return self._prices.get(node_id)

    def _keep_price(self, session: AgentSession) -> None:
        self._prices.pop(session.node_id, None)
        descriptor = session.descriptor
        if descriptor is not None and descriptor.HasField("price_per_hour"):
            price = types_pb2.Money()
            price.CopyFrom(descriptor.price_per_hour)  # a part would keep all of it in memory
            self._prices[session.node_id] = price
            if len(self._prices) > PRICES_MAX:
                del self._prices[next(iter(self._prices))]

    def turn_away(self, session: AgentSession, reason: str, text: str) -> None:
        """Tell that its session was refused, or ended for a broken rule."""
        principal = current().name or (f"node/{session.node_id}" if session.node_id else "")
        self._refusals.tell(
            Place.SESSION, reason, f"an agent: {text}", principal=principal, address=session.peer
        )

    def on_foreign(self) -> None:
        """An agent spoke of an item that it does not hold; nothing came of it."""
        self._refusals.count(Place.ITEM, Reason.PERMISSION_DENIED.name)

    def register(self, session: AgentSession) -> None:
        """It has said hello: commands for it may come."""
        self.sessions[session.node_id, session.epoch] = session
        log.info("session is up", extra={"event": "session_up", **_fields(session)})

    def unregister(self, session: AgentSession, *, goodbye: bool) -> None:
        """It is over."""
        self.sessions.pop((session.node_id, session.epoch), None)
        self._keep_price(session)
        self.post(SessionBroken(session.node_id, session.epoch, goodbye))
        session.commands.lose()
        log.info("session has ended", extra={"event": "session_ended", **_fields(session)})

    def fault(self, what: str, error: Exception) -> None:
        """Count an exception that nothing may stop for, and tell the first of its kind in full."""
        self.faults += 1
        if what not in self._told:
            self._told.add(what)
            log.error(
                "%s; further such faults are only counted",
                what,
                exc_info=error,
                extra={"event": "session_fault"},
            )

    async def close(self, reason: Reason, message: str, *, reconnect: bool) -> None:
        """Say goodbye to every agent, and to those that dial from now on.

        Returns when all streams have ended, at the latest after `CLOSE_S`.
        """
        error = status.error(reason, message)
        self._closed = (error, reconnect)
        tasks = list(self._streams.values())
        for stream in list(self._streams):
            stream.session.say_goodbye(error, reconnect=reconnect)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    async def _connect(self, _requests: object, context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        stream = _Stream(self, context)
        self._streams[stream] = task
        try:
            # An agent that is gone already is noticed by its reader.
            with contextlib.suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
                await context.send_initial_metadata(self._greeting(context))
            if self._closed is not None:
                stream.session.say_goodbye(self._closed[0], reconnect=self._closed[1])
            await stream.serve()
        finally:
            del self._streams[stream]

    def _greeting(self, context: Context) -> list[tuple[str, str]]:
        """What anybody learns who may open a stream, before a Hello."""
        now = self.clock.wall_ns(self.clock.now())
        told = [
            (greeting.VERSION, self.version),
            (greeting.TIME_NS, str(now)),
            (greeting.MESSAGE_BYTES, str(self.settings.max_message_bytes)),
        ]
        asked = dict(context.invocation_metadata() or ()).get(greeting.ASKED_ID)
        if asked is not None:
            peers = (s.peer for (node_id, _), s in self.sessions.items() if node_id == asked
                     and isinstance(s, AgentSession))  # fmt: skip
            told.append((greeting.HELD_BY, next(peers, "")))
            refused = self._why_not_join(current(), str(asked))
            told.append((greeting.REFUSED, refused.encode("ascii", "replace").decode()))
        return told

    def holder(self, newcomer: AgentSession) -> str:
        """Address of the agent that has the newcomer's node id."""
        for (node_id, epoch), held in self.sessions.items():
            if node_id == newcomer.node_id and epoch != newcomer.epoch:
                return held.peer if isinstance(held, AgentSession) else "an unknown address"
        return "an agent that has just left"


class _Stream:
    """One stream, from its first message to its end."""

    def __init__(self, port: NodePort, context: Context) -> None:
        self._port = port
        self._context = context
        self.session = AgentSession(
            settings=port.settings,
            identity=port.identity,
            clock=port.clock,
            tracer=port.tracer,
            relay=port.relay,
            version=port.version,
            peer=context.peer(),
            on_close=self._on_close,
        )
        self._reader = NodeReader(port, self.session)
        self._left = False  # the agent half-closed
        self._ended = False

    async def serve(self) -> None:
        """Read and write until the stream is over."""
        reader = asyncio.create_task(self._read(), name="node session reader")
        writer = asyncio.create_task(self.session.run(self._context.write), name="node writer")
        wait_s = self._port.settings.hello_timeout / 1e9
        alarm = asyncio.get_running_loop().call_later(wait_s, self._miss_hello)
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if self.session.closing:
                await asyncio.wait((writer,))
                # Were the stream ended at once, a write of the agent might fail before it reads
                # the goodbye, which gRPC then withholds from it.
                await asyncio.wait((reader,), timeout=PART_S)
            self._end()
            if reader.done() or writer.exception() is not None:
                # The peer went. If its connection broke, gRPC cancels this now; to return before
                # that would have gRPC fail to send a status, and log so.
                await asyncio.sleep(CANCEL_S)
        finally:
            self._end()
            alarm.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read(self) -> None:
        """Take in messages until the peer ends; what comes after a goodbye is thrown away."""
        session = self.session
        try:
            while True:
                data: Any = await self._context.read()
                if data is grpc.aio.EOF:
                    self._left = True
                    return
                if not session.closing:
                    self._take(data)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as broken:
            log.debug("the stream of %s broke: %r", session.peer, broken)

    def _take(self, data: bytes) -> None:
        """Handle one message. Nothing in it stops the reader but a broken rule."""
        try:
            self._reader.take(data)
        except SessionRefused as refusal:
            self._refuse(refusal)
        except Exception as error:  # ours: the node's other messages go on
            self._port.fault("a node's message was not handled", error)

    def _miss_hello(self) -> None:
        if not self.session.epoch:
            self._refuse(violation("no hello came; it is the first message of a stream", "hello"))

    def _refuse(self, refusal: SessionRefused) -> None:
        name = types_pb2.ErrorReason.Name(refusal.error.reason)
        self._port.turn_away(self.session, name.removeprefix("ERROR_REASON_"), str(refusal))
        self.session.say_goodbye(refusal.error, reconnect=refusal.reconnect)

    def _on_close(self, error: types_pb2.Error | None) -> None:
        """The goodbye is about to be sent."""
        session = self.session
        if error is not None and error.reason == types_pb2.ERROR_REASON_NODE_ID_IN_USE:
            holder = self._port.holder(session)
            text = f"node id {session.node_id} asked for by {session.peer}: {holder} holds it"
            self._port.turn_away(session, Reason.NODE_ID_IN_USE.name, text)
        self._end()

    def _end(self) -> None:
        """The session is over; the core hears of it, once."""
        if not self._ended:
            self._ended = True
            if self.session.epoch:
                self._port.unregister(self.session, goodbye=self._left and self.session.drained)


def _fields(session: AgentSession) -> dict[str, str | int]:
    """The session, as log lines name it."""
    return {"node_id": session.node_id, "session_epoch": session.epoch, "address": session.peer}
