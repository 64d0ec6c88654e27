"""What is sent to one agent, and in what order?

`AgentSession` is one stream as the effects and the operators see it; its `run` is the stream's only
writer. It is self-clocking: what gathers while a write is awaited leaves in the next message, and
nothing waits while the stream is idle. Order that matters on the wire:

- Welcome first, Goodbye last.
- A cancel leaves with or after the items that it names. Items whose attempt has ended meanwhile are
  sent all the same, for the core's books count them as sent; their cancel is right behind.
- A batch that was sent before a drain stays before it, one after it stays after it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import CloseSession, DrainNode
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.relay import Relay
from scheduler_service.core.types import NEVER, Batch, Instant
from scheduler_service.rpc import status
from scheduler_service.rpc.handover import bake
from scheduler_service.rpc.node_batches import BatchQueue
from scheduler_service.rpc.node_commands import CommandQueue
from scheduler_service.rpc.node_settings import PROTOCOL_VERSION, Identity, NodePortSettings
from scheduler_service.rpc.ports import Tracer

log = logging.getLogger(__name__)


# Acknowledgements ride on other messages; alone they leave after this long, or when so many wait.
# Longer than most batches take, so that the next batch carries them: a message of their own would
# leave just when the credit for that batch comes.
ACK_LINGER_S: Final = 0.1
ACKS_AT_ONCE: Final = 256
_LAST_TIME: Final = 253_402_300_800 * 1_000_000_000  # ns; the protocol's Timestamp ends before


class AgentSession:
    """One agent's stream, from its first message to its end. See `ports.NodeSession`."""

    def __init__(
        self,
        *,
        settings: NodePortSettings,
        identity: Identity,
        clock: Clock,
        tracer: Tracer,
        relay: Callable[[], Relay],
        version: str,
        peer: str,
        on_close: Callable[[types_pb2.Error | None], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._relay = relay
        self._version = version
        self._on_close = on_close  # called once, when it begins to close

        # For operators. Empty until the Hello.
        self.peer = peer  # its address, as gRPC spells it
        self.connected_at: Instant = clock.now()
        self.connect_time = clock.timestamp(self.connected_at)
        self.node_id = ""
        self.epoch = 0
        self.boot_id = ""
        self.agent_version = ""
        self.features: tuple[str, ...] = ()
        self.descriptor: pb.NodeDescriptor | None = None
        self.report: pb.NodeReport | None = None
        self.round_trip_s: float | None = None  # None: not measured yet
        self.clock_offset_us: int | None = None  # its clock minus ours

        self.foreign: list[int] = []  # dispatch ids of another cluster, to be abandoned
        self.welcomed = False
        self.drained = False  # either side's drain asks the agent to leave
        self.closing = False
        self._wake = asyncio.Event()
        self._welcome: pb.Welcome | None = None
        self._acked = 0  # running total
        self._acked_sent = 0
        self._acks_due = False
        self._ack_timer: asyncio.TimerHandle | None = None
        key = settings.cookie_key
        baker = functools.partial(bake, clock=clock, key=key) if key else None
        self._batches = BatchQueue(tracer, settings.max_message_bytes, baker)
        self._cancels: deque[tuple[int, Sequence[int], Reason]] = deque()  # after that batch
        self._drains: deque[tuple[int, DrainNode]] = deque()  # likewise
        self.commands = CommandQueue(self._wake.set)
        self._ping_due = False
        self._pings = 0  # the last nonce
        self._pinged_at: Instant = 0
        self.awaits_pong = False
        self._goodbye: pb.Goodbye | None = None
        self._over = False  # the goodbye has been handed out

    def introduce(self, hello: pb.Hello, epoch: int) -> None:
        """Take down who it is. The epoch makes it a session."""
        self.node_id = hello.node_id
        self.epoch = epoch
        self.boot_id = hello.boot_id
        self.agent_version = hello.agent_version
        self.features = tuple(hello.features)

    # What the effects ask for (ports.NodeSession).

    def welcome(self, abandon: Sequence[int], adopted: Sequence[int]) -> None:
        """Admit it: send Welcome, with the relay's offsets for the adopted ids."""
        settings = self._settings
        self._welcome = pb.Welcome(
            session_epoch=self.epoch,
            cluster_id=self._identity.cluster_id,
            term=self._identity.term,
            scheduler_version=self._version,
            protocol_version=PROTOCOL_VERSION,
            abandon_dispatch_ids=[*abandon, *self.foreign],
            resume_points=self._resume_points(adopted),
            heartbeat_interval=status.duration(settings.heartbeat_interval),
            session_timeout=status.duration(settings.session_timeout),
            resume_window=status.duration(settings.resume_window),
            report_interval=status.duration(settings.report_interval),
            coalesce=status.duration(settings.coalesce),
            max_message_bytes=settings.max_message_bytes,
            server_time=self._clock.timestamp(self._clock.now()),
        )
        self.welcomed = True
        self._wake.set()

    def _resume_points(self, adopted: Sequence[int]) -> list[pb.ResumePoint]:
        lanes = self._relay().lanes
        return [
            pb.ResumePoint(
                dispatch_id=dispatch_id,
                offsets=[
                    types_pb2.StreamOffset(choice_index=choice, channel=channel, offset=end)
                    for choice, channel, end in lanes[dispatch_id].output.positions()
                ],
            )
            for dispatch_id in adopted
            if dispatch_id in lanes  # items that do not stream have none
        ]

    def dispatch(self, batch: Batch) -> None:
        """Send the batch; items are spliced from the requests' own bytes."""
        self._batches.add(batch)
        self._wake.set()

    @property
    def items_sent(self) -> int:
        """In this session."""
        return self._batches.items_sent

    def cancel(self, dispatch_ids: Sequence[int], reason: Reason) -> None:
        """Ask it to stop these."""
        self._cancels.append((self._batches.queued, dispatch_ids, reason))
        self._wake.set()

    def acknowledge(self, count: int) -> None:
        """So many more results are dealt with. Said with the next message, or after a moment: by
        itself it would cost a message per result where work comes in one by one. An agent that
        leaves waits for nothing else.
        """
        self._acked += count
        if self.drained or self._acked - self._acked_sent >= ACKS_AT_ONCE:
            self._say_acks()
        elif self._ack_timer is None:
            loop = asyncio.get_running_loop()
            self._ack_timer = loop.call_later(ACK_LINGER_S, self._say_acks)

    def _say_acks(self) -> None:
        self._ack_timer = None
        self._acks_due = True
        self._wake.set()

    def drain(self, command: DrainNode) -> None:
        """No new work, finish, give back the rest; or that this is taken back."""
        self.drained = not command.lifted and (self.drained or command.terminate)
        self._drains.append((self._batches.queued, command))
        self._wake.set()

    def ping(self) -> None:
        """Ask for a sign of life. Also measures the round trip and the clock's offset."""
        self._ping_due = True
        self.awaits_pong = True
        self._wake.set()

    def close(self, command: CloseSession) -> None:
        """Say goodbye with the reason and end the stream."""
        taken = command.reason is Reason.NODE_ID_IN_USE
        error = status.error(
            command.reason,
            command.message,
            field="hello.node_id" if taken else "",
            metadata={"nodeId": command.node_id} if taken else None,
        )
        self.say_goodbye(error, reconnect=command.reconnect)

    def say_goodbye(self, error: types_pb2.Error | None, *, reconnect: bool) -> None:
        """End the stream with a last message; the first of several counts."""
        if self.closing:
            return
        self.closing = True
        self._goodbye = pb.Goodbye(error=error)
        if reconnect:
            self._goodbye.reconnect_after.CopyFrom(status.duration(self._settings.reconnect_after))
        self._batches.clear()
        self._wake.set()
        self._on_close(error)

    # What comes back.

    def take_pong(self, pong: pb.Pong, now: Instant) -> None:
        """The answer to the last ping."""
        self.awaits_pong = False
        if pong.nonce != self._pings or not self._pinged_at:
            return
        trip = now - self._pinged_at
        self.round_trip_s = trip / 1e9
        if pong.HasField("receive_time"):
            theirs = pong.receive_time.seconds * 1_000_000_000 + pong.receive_time.nanos
            ours = self._clock.wall_ns(now - trip // 2)
            if 0 <= theirs < _LAST_TIME:
                self.clock_offset_us = (theirs - ours) // 1000

    # The writer.

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write until the goodbye is out. Raises what the stream raises."""
        while True:
            message = self._next_message()
            if message is not None:
                await write(message)
            elif self._over:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _next_message(self) -> bytes | None:
        """The next message; None: nothing waits."""
        if self._goodbye is not None:
            return self._farewell(self._goodbye)
        if not self.welcomed:
            return None
        try:
            return self._pack().SerializeToString() or None
        except Exception:  # ours; this session cannot be trusted any more, the others can
            log.exception(
                "the session of %s failed",
                self.node_id,
                extra={"event": "session_fault", "node_id": self.node_id},
            )
            message = "the scheduler could not write to this session; say hello again"
            self.say_goodbye(status.error(Reason.INTERNAL, message), reconnect=True)
            assert self._goodbye is not None
            return self._farewell(self._goodbye)

    def _farewell(self, goodbye: pb.Goodbye) -> bytes | None:
        if self._over:
            return None
        self._over = True
        message = wire_pb2.PackedConnectResponse(goodbye=goodbye)
        self._pack_acks(message)
        return message.SerializeToString()

    def _pack(self) -> wire_pb2.PackedConnectResponse:
        """All that may leave now."""
        message = wire_pb2.PackedConnectResponse()
        others = self._welcome or self._batches or self._cancels or self._drains or self._ping_due
        if others or self._acks_due:
            self._pack_acks(message)
        if self._welcome is not None:
            message.welcome.CopyFrom(self._welcome)
            self._welcome = None
        if self._batches:
            last = self._drains[0][0] if self._drains else self._batches.queued
            self._batches.pack(message, last, self._clock.now())
        while self._cancels and self._cancels[0][0] <= self._batches.sent:
            _, dispatch_ids, reason = self._cancels.popleft()
            message.cancels.add(
                dispatch_ids=dispatch_ids,
                reason=int(reason),
            )
        if self._drains and self._drains[0][0] <= self._batches.sent:
            _pack_drain(message.drain, self._drains.popleft()[1])
        if self.commands.waiting:
            message.commands.extend(self.commands.take())
        if self._ping_due:
            self._ping_due = False
            self._pings += 1
            self._pinged_at = self._clock.now()
            message.ping.nonce = self._pings
        return message

    def _pack_acks(self, message: wire_pb2.PackedConnectResponse) -> None:
        self._acks_due = False
        if self._acked > self._acked_sent:
            message.results_acked = self._acked_sent = self._acked


def _pack_drain(message: pb.Drain, command: DrainNode) -> None:
    message.SetInParent()
    if command.lifted:
        message.lifted = True
        return
    if command.grace < NEVER:
        message.grace.CopyFrom(status.duration(command.grace))
    message.reason = command.reason
    message.terminate = command.terminate
