"""What does the scheduler's side of one stream do? Messages to the core's events, and back.

The work of `scheduler_service/rpc`'s node port, without bytes: hellos open sessions, output goes
through the relay, everything else becomes an event; commands become messages.

What comes of a session that the core has closed is still passed on for a moment: in the live
service it may sit in the inbox already. The core's own fences have to stop it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node_agent.core.items import Held, Item, OutcomeKind
from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import MILLISECOND, NEVER, Attempt, Batch
from simulator import messages as msg
from simulator.engines.interface import Work
from simulator.network import Stream
from simulator.world import ProtocolBroken, World

UNIT = 4  # bytes of text per token
LINGER = 300 * MILLISECOND  # after its end a session is still heard for so long


class Edge:
    """One stream at the scheduler."""

    def __init__(self, world: World, stream: Stream, cluster: int) -> None:
        self._world = world
        self._stream = stream
        self._term = cluster
        self._epoch = 0  # before its hello
        self._node_id = ""
        self._acknowledged = 0
        self._drained = False
        self._over = False
        stream.listen(at_scheduler=True, hear=self._hear, on_break=self._on_break)

    # From the agent.

    def _hear(self, message: Any) -> None:
        if self._over:
            return
        if isinstance(message, msg.Hello):
            self._begin(message)
        elif isinstance(message, msg.Goodbye):
            self._end(goodbye=self._drained)
        else:
            self._world.post(ev.NodesHeard([(self._node_id, self._epoch)]))
            try:
                self._take(message)
            except ProtocolBroken:
                self._send(msg.Close(Reason.PROTOCOL_VIOLATION, reconnect=True))
                self._end()

    def _begin(self, hello: msg.Hello) -> None:
        self._epoch = self._world.new_epoch()
        self._node_id = hello.node_id
        self._world.open_session(hello.node_id, self._epoch, self)
        running = [ev.RunningItem(dispatch_id, finished) for dispatch_id, finished in hello.held]
        self._world.post(
            ev.NodeJoined(hello.node_id, hello.boot_id, self._epoch, hello.spec, running)
        )

    def _take(self, message: msg.FromAgent) -> None:
        world, node_id, epoch = self._world, self._node_id, self._epoch
        if message.running:
            world.post(ev.ItemsRunning(node_id, epoch, message.running))
        for delta in message.deltas:
            world.hear(delta.dispatch_id, epoch, delta.offset, delta.text, delta.tokens)
        if message.results:
            ends = [_item_end(held) for held in message.results]
            world.post(ev.ItemsFinished(node_id, epoch, ends))
        if message.credits:
            granted = [(engine, *totals) for engine, totals in message.credits.items()]
            world.post(ev.CreditsGranted(node_id, epoch, granted))
        if message.report is not None:
            world.post(ev.ReportReceived(node_id, epoch, *message.report))
        if message.drain is not None:
            self._drained = True
            grace, reason = message.drain
            limit = NEVER if grace is None else grace
            world.post(ev.DrainRequested(node_id, limit, True, reason, by_agent=True))

    def _on_break(self) -> None:
        self._end()

    def _end(self, *, goodbye: bool = False) -> None:
        if not self._over:
            self._over = True
            self._stream.deaf(at_scheduler=True)
            if self._epoch:
                self._world.end_session(self._node_id, self._epoch, goodbye=goodbye)

    # To the agent.

    def _send(self, message: Any) -> None:
        self._stream.send(message, to_scheduler=False)

    def welcome(self, abandon: Sequence[int], adopted: Sequence[int]) -> None:
        """With the relay's offsets for what is adopted."""
        lanes = self._world.scheduler.relay.lanes
        points = {
            dispatch_id: {
                (choice, channel): end
                for choice, channel, end in lanes[dispatch_id].output.positions()
            }
            for dispatch_id in adopted
            if dispatch_id in lanes
        }
        self._send(msg.Welcome(self._term, self._epoch, abandon, points))

    def dispatch(self, batch: Batch) -> None:
        """Items as the agent's core takes them."""
        items = [self._item(attempt) for attempt in batch.attempts]
        self._send(msg.Work(batch.engine.engine_id, items, batch.atomic))

    def _item(self, attempt: Attempt) -> Item:
        request = attempt.request
        starts: dict[tuple[int, int], int] = {}
        if request.continuing and request.output is not None:
            starts = {(c, n): end for c, n, end in request.output.positions()}
        left = request.deadline - self._world.now if request.deadline < NEVER else None
        offset = starts.get((0, 0), 0) // UNIT
        work = Work(attempt.dispatch_id, request.context.arrival, attempt.inputs, offset)
        return Item(
            dispatch_id=attempt.dispatch_id,
            attempt=attempt.number,
            request_id=request.request_id,
            tenant=request.tenant,
            output_id=attempt.output_id,
            model=attempt.model,
            inputs=attempt.inputs,
            tokens=attempt.tokens,
            stream=request.stream,
            remaining_ns=left,
            starts=starts,
            payload=work,
        )

    def cancel(self, command: cmd.CancelAttempts) -> None:
        """Stop these."""
        self._send(msg.Cancels(command.dispatch_ids, command.reason))

    def acknowledge(self, count: int) -> None:
        """The total of this session."""
        self._acknowledged += count
        self._send(msg.Acknowledged(self._acknowledged))

    def drain(self, command: cmd.DrainNode) -> None:
        """Its agent is told; that it leaves afterwards is no broken stream."""
        self._drained = not command.lifted and (self._drained or command.terminate)
        grace = command.grace if command.grace < NEVER else None
        self._send(msg.Drain(grace, command.terminate, command.reason, command.lifted))

    def ping(self) -> None:
        """A sign of life is wanted."""
        self._send(msg.Ping())

    def close(self, command: cmd.CloseSession) -> None:
        """A goodbye."""
        self._send(msg.Close(command.reason, command.reconnect))
        agenda = self._world.agenda
        agenda.at(agenda.now + LINGER, self._close)

    def _close(self, _: None) -> None:
        self._over = True
        self._stream.deaf(at_scheduler=True)


def _item_end(held: Held) -> ev.ItemEnd:
    outcome = held.outcome
    assert outcome is not None, "a result has an outcome"
    work = outcome.result if isinstance(outcome.result, Work) else None
    end = ev.ItemEnd(held.item.dispatch_id, payload=held.item.dispatch_id)
    if work is not None:
        end.input_tokens, end.output_tokens = work.prompt_tokens, work.made
    if outcome.kind is OutcomeKind.ENGINE:
        if work is None or work.out_of_memory:
            end.reason = Reason.ENGINE_OOM
        elif not work.complete:
            end.reason = Reason.ENGINE_ERROR
    else:
        end.reason = Reason[outcome.reason]
        end.message = outcome.message
        end.refused = outcome.kind is OutcomeKind.REFUSED
    return end
