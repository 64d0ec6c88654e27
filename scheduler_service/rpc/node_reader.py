"""What happens when an agent's message arrives?

Messages become events for the core, part by part in the order of their fields; output goes straight
to its clients (`node_deltas.py`). What breaks a rule raises `SessionRefused` and ends the session;
a fault of ours is counted and stops neither the other parts nor the messages that follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.events import (
    CreditsGranted,
    DrainRequested,
    Event,
    ItemsFinished,
    ItemsRunning,
    NodeDescribed,
    NodeJoined,
    NodesHeard,
    OutputsBegun,
)
from scheduler_service.core.relay import Relay
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Instant
from scheduler_service.rpc import convert_node
from scheduler_service.rpc.convert_node import SessionRefused, violation
from scheduler_service.rpc.handover import Handover
from scheduler_service.rpc.node_conduct import Conduct, InFlight
from scheduler_service.rpc.node_deltas import DeltaGate
from scheduler_service.rpc.node_settings import Identity
from scheduler_service.rpc.node_writer import AgentSession
from service_kit import wire_walk

log = logging.getLogger(__name__)

HEARD_EVERY: Final = 100 * MILLISECOND  # signs of life are passed on no oftener
MEASURE_EVERY: Final = 10 * SECOND  # round trip and clock offset
SERVICE_CHANGE: Final = 0.1  # of a profile's service time: the core is told

_Copied = TypeVar("_Copied", bound=Message)


class Surroundings(Protocol):
    """What a reader needs of its port."""

    clock: Clock
    identity: Identity
    post: Callable[[Event], None]
    relay: Callable[[], Relay]
    in_flight: InFlight | None
    handover: Handover | None

    def admit(self, node_id: str) -> str:
        """The id under which this agent is known."""

    def register(self, session: AgentSession) -> None:
        """The session has begun: commands for it may come."""

    def on_foreign(self) -> None:
        """It spoke of an item that it does not hold."""

    def fault(self, what: str, error: Exception) -> None:
        """Something of ours failed, and the reader goes on."""


class NodeReader:
    """Takes in the messages of one stream."""

    def __init__(self, port: Surroundings, session: AgentSession) -> None:
        self._port = port
        self._session = session
        self._gate = DeltaGate(0, port.fault)
        self._conduct = Conduct(port.in_flight, port.on_foreign)
        self._services: convert_node.Services = {}
        self._heard_at: Instant = 0
        self._measure_at: Instant = 0
        # By field number of ConnectRequest, which is also the order in which parts are handled.
        self._handlers: dict[int, Callable[[Any], None]] = {
            3: self._hello_again,
            4: self._descriptor,
            5: self._updates,
            6: self._deltas,
            7: self._results,
            8: self._credits,
            9: self._report,
            10: self._command_results,
            11: self._drain,
            12: self._pong,
        }

    def take(self, data: bytes) -> None:
        """Handle one message.

        Raises:
            SessionRefused: it breaks the protocol.
        """
        self._conduct.message(self._port.clock.now())
        try:
            message = wire_pb2.PackedConnectRequest.FromString(data)
        except DecodeError:
            raise _unreadable(data) from None
        if message.results:
            convert_node.check_length(message.results, "results")
            if not _is_readable(data):
                convert_node.fail_unreadable(message.results)
        parts = message.ListFields()
        if self._session.epoch:
            self._hear()
        elif message.HasField("hello"):
            self._begin(message.hello)
            parts = parts[1:]
        else:
            raise violation("the first message of a stream is a hello", "hello")
        for field, value in parts:
            try:
                self._handlers[field.number](value)
            except SessionRefused:
                raise
            except Exception as error:  # ours: the other parts go on
                self._port.fault(f"the {field.name} of a node's message were not handled", error)

    def _hear(self) -> None:
        """Any message is a sign of life."""
        session = self._session
        now = self._port.clock.now()
        if session.awaits_pong or now - self._heard_at >= HEARD_EVERY:
            self._heard_at = now
            self._port.post(NodesHeard([(session.node_id, session.epoch)]))
        if now >= self._measure_at and session.welcomed:
            self._measure_at = now + MEASURE_EVERY
            session.ping()

    def _begin(self, hello: pb.Hello) -> None:
        """Open the session."""
        port, session = self._port, self._session
        convert_node.check_hello(hello, port.identity)
        hello.node_id = port.admit(hello.node_id)
        report = hello.report if hello.HasField("report") else None
        if report is not None:
            convert_node.check_report(report, "hello.report")
        spec = convert_node.node_spec(hello.descriptor, report, path="hello.descriptor")
        running = convert_node.running_items(hello)
        if hello.cluster_id not in ("", port.identity.cluster_id):
            session.foreign = [item.dispatch_id for item in running]
            running = []
        elif running and port.handover is not None:
            told = list(hello.running_items)
            for _ in range(port.handover.recognise(hello.node_id, running, told)):
                port.on_foreign()
        session.introduce(hello, port.identity.next_epoch())
        session.descriptor = _copy(hello.descriptor)
        if report is not None:
            session.report = _copy(report)
            self._services = convert_node.services(session.descriptor, report)
        self._gate = DeltaGate(session.epoch, port.fault, self._speaks_of)
        self._heard_at = port.clock.now()
        port.register(session)
        port.post(NodeJoined(session.node_id, session.boot_id, session.epoch, spec, running))

    def _speaks_of(self, dispatch_id: int, field: str = "deltas.ids") -> None:
        """An item that may not be its own."""
        session = self._session
        self._conduct.speaks_of(session.node_id, session.epoch, dispatch_id, field)

    def _hello_again(self, _hello: pb.Hello) -> None:
        raise violation("a hello is the first message of a stream, and only that", "hello")

    def _descriptor(self, descriptor: pb.NodeDescriptor) -> None:
        session = self._session
        spec = convert_node.node_spec(descriptor, session.report)
        session.descriptor = _copy(descriptor)
        self._port.post(NodeDescribed(session.node_id, session.epoch, spec))

    def _updates(self, updates: Any) -> None:
        convert_node.check_length(updates, "updates")
        began = convert_node.running_ids(updates)
        if began:
            self._port.post(ItemsRunning(self._session.node_id, self._session.epoch, began))

    def _deltas(self, deltas: types_pb2.TokenDeltas) -> None:
        begun: list[int] = []
        relay = self._port.relay()
        stale = relay.stale
        try:
            self._gate.take(deltas, relay, begun)
        except SessionRefused as refusal:
            if refusal.dispatch_id:
                end = convert_node.end_for(refusal)
                session = self._session
                self._port.post(ItemsFinished(session.node_id, session.epoch, [end]))
            raise
        finally:
            relay.deltas += len(deltas.ids) - (relay.stale - stale)
            if begun:
                self._port.post(OutputsBegun(begun))

    def _results(self, results: Any) -> None:
        session = self._session
        items = [convert_node.item_end(result) for result in results]
        self._gate.forget(item.dispatch_id for item in items)
        held = self._conduct.held(session.node_id, session.epoch)
        for item in items:
            if held is not None and item.dispatch_id not in held:
                self._speaks_of(item.dispatch_id, "results.dispatch_id")
        self._port.post(ItemsFinished(session.node_id, session.epoch, items))

    def _credits(self, totals: Any) -> None:
        convert_node.check_length(totals, "credits")
        granted = convert_node.credit_totals(totals)
        self._port.post(CreditsGranted(self._session.node_id, self._session.epoch, granted))

    def _report(self, report: pb.NodeReport) -> None:
        session = self._session
        convert_node.check_report(report)
        if report.items_received > session.items_sent:  # what is on its way would be called lost
            raise violation(
                f"report.items_received is {report.items_received}, of {session.items_sent} items "
                "sent in this session: count anew after each welcome",
                "report.items_received",
            )
        session.report = _copy(report)
        assert session.descriptor is not None
        services = convert_node.services(session.descriptor, report)
        if _differ(self._services, services):
            self._services = services
            spec = convert_node.node_spec(session.descriptor, report)
            self._port.post(NodeDescribed(session.node_id, session.epoch, spec))
        self._port.post(convert_node.report_event(session.node_id, session.epoch, report))
        session.commands.reported()

    def _command_results(self, results: Any) -> None:
        """Commands were done, or could not be."""
        convert_node.check_length(results, "command_results")
        self._session.commands.answer(results)

    def _drain(self, drain: pb.Drain) -> None:
        session = self._session
        session.drained = True
        grace = convert_node.nanoseconds(drain.grace) if drain.HasField("grace") else NEVER
        reason = drain.reason[: convert_node.MESSAGE_CHARS]
        if session.welcomed:  # the event names no epoch: it must not hit another session
            self._port.post(
                DrainRequested(session.node_id, grace, drain.terminate, reason, by_agent=True)
            )

    def _pong(self, pong: pb.Pong) -> None:
        self._session.take_pong(pong, self._port.clock.now())


def _is_readable(data: bytes) -> bool:
    """Whether also what passes through here as bytes is what it should be. It costs 0.1 us a
    result, for nothing is looked at in Python.
    """
    try:
        pb.ConnectRequest.FromString(data)
    except DecodeError:
        return False
    return True


def _unreadable(data: bytes) -> SessionRefused:
    where = wire_walk.locate(data, wire_pb2.PackedConnectRequest)
    return violation(
        f"a message is no valid protobuf{' at ' if where else ''}{where}: "
        "bad UTF-8, cut off or nested too deep",
        where,
    )


def _copy(message: _Copied) -> _Copied:
    """A copy that stands alone: a part of a message would keep all of it in memory."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _differ(before: convert_node.Services, after: convert_node.Services) -> bool:
    """Whether service times changed enough to matter."""
    return any(
        abs(service - before.get(key, 0)) > SERVICE_CHANGE * before.get(key, 0)
        for key, service in after.items()
    )
