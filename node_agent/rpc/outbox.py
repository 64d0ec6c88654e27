"""What waits to leave on the session, and what goes into its next message?

Self-clocking: while a write is awaited, things gather here; the next message takes them together.
Order that matters on the wire:

- A result leaves only when all output of its item has left (in an earlier or the same message).
- Results leave in the order the core sent them: the scheduler acknowledges by their number.
- Credits that an engine without work waits for leave in a message of their own, before its many
  results and any report: the next batch is on its way while those are written and read.
- An update of an item whose result leaves in the same message is left out.
- A report leaves only in a message that takes all waiting results, for it says which items have no
  result yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import clock
from node_agent.core import Held
from node_agent.core import commands as cmd
from node_agent.core.outputs import Delta, Extra, OutputBook
from node_agent.core.slots import MANY_ENDS
from node_agent.rpc import durations
from node_agent.rpc.convert import STATES
from node_agent.rpc.results import item_result, too_large

MAX_DELTAS = 256
MAX_DELTA_BYTES = 64 * 1024
MAX_EXTRAS = 1024
MAX_UPDATES = 1024
RESULT_BYTES = 256 * 1024  # per message, unless one alone is larger
RESERVED_BYTES = 64 * 1024  # of a message, for what is neither deltas nor results
DEFAULT_MESSAGE_BYTES = 4 * 1024 * 1024


class Outbox:
    """Everything that waits for the one writer of a session."""

    def __init__(self, outputs: OutputBook) -> None:
        self._outputs = outputs
        self._wake: Callable[[], None] = _nobody
        self.make_descriptor: Callable[[], node.NodeDescriptor] = node.NodeDescriptor
        self.make_report: Callable[[], node.NodeReport] = node.NodeReport
        self.max_message_bytes = DEFAULT_MESSAGE_BYTES
        self._descriptor_due = False
        self._report_due = False
        self._clear()

    def _clear(self) -> None:
        self._updates: deque[node.ItemUpdate] = deque()
        self._results: deque[Held] = deque()
        self._credits: dict[str, cmd.SendCredit] = {}
        self._hungry = False  # an engine has nothing to do until its credit is known
        self._pongs: deque[node.Pong] = deque()
        self._command_results: list[node.CommandResult] = []
        self._drain: node.Drain | None = None

    def attach(self, wake: Callable[[], None]) -> None:
        """A session begins: nothing of an earlier one waits; `wake` is called for each piece.

        What changed since the Hello was written is still due: an engine may come up meanwhile.
        """
        self._clear()
        self._wake = wake

    def detach(self) -> None:
        """The session is over; the next Hello says all that there is to say."""
        self._clear()
        self._descriptor_due = self._report_due = False
        self._wake = _nobody

    # What comes in.

    def add_update(self, command: cmd.SendUpdate) -> None:
        """An item entered a state."""
        update = node.ItemUpdate(dispatch_id=command.dispatch_id, state=STATES[command.state])
        durations.write_ns(update.elapsed, command.elapsed_ns)
        self._updates.append(update)
        self._wake()

    def add_output(self) -> None:
        """There is output in the book."""
        self._wake()

    def add_result(self, held: Held) -> None:
        """An item ended."""
        self._results.append(held)
        self._wake()

    def add_credit(self, command: cmd.SendCredit) -> None:
        """An engine's running totals; the last ones win."""
        self._credits[command.engine_id] = command
        self._hungry = self._hungry or command.hungry
        self._wake()

    def add_pong(self, nonce: int) -> None:
        """A ping is to be answered."""
        self._pongs.append(node.Pong(nonce=nonce, receive_time=clock.timestamp()))
        self._wake()

    def add_command_result(self, result: node.CommandResult) -> None:
        """A command was done, or could not be."""
        self._command_results.append(result)
        self._wake()

    def add_drain(self, drain: node.Drain) -> None:
        """The agent wants out."""
        self._drain = drain
        self._wake()

    def need_descriptor(self) -> None:
        """Models, adapters or slots changed."""
        self._descriptor_due = True
        self._wake()

    def need_report(self) -> None:
        """The load is to be told."""
        self._report_due = True
        self._wake()

    # What goes out.

    @property
    def is_urgent(self) -> bool:
        """Whether something waits that is not to be gathered any longer."""
        return bool(
            self._outputs.urgent
            or self._results
            or self._credits
            or self._pongs
            or self._updates
            or self._drain
            or self._command_results
            or self._report_due
            or self._descriptor_due
        )

    @property
    def has_output(self) -> bool:
        """Whether output waits."""
        return self._outputs.any_unsent

    def next_message(self) -> node.ConnectRequest:
        """Take what may leave now; an empty message is a heartbeat."""
        message = node.ConnectRequest()
        few = 0 < len(self._results) < MANY_ENDS
        if self._hungry and not few and not self._descriptor_due:
            self._take_credits(message)
            return message
        if self._descriptor_due:
            self._descriptor_due = False
            message.descriptor.CopyFrom(self.make_descriptor())
        if self._outputs.any_extras:
            extras = self._outputs.take_extras(MAX_EXTRAS)
            message.deltas.extras.extend(_extra(extra) for extra in extras)
        if not self._outputs.any_extras:
            _fill_columns(message, self._outputs.take(MAX_DELTAS, MAX_DELTA_BYTES))
        self._take_results(message)
        self._take_updates(message)
        self._take_credits(message)
        if self._report_due and not self._results:
            self._report_due = False
            message.report.CopyFrom(self.make_report())
        message.command_results.extend(self._command_results)
        self._command_results.clear()
        if self._drain is not None:
            message.drain.CopyFrom(self._drain)
            self._drain = None
        if self._pongs:
            message.pong.CopyFrom(self._pongs.popleft())
        return message

    def _take_credits(self, message: node.ConnectRequest) -> None:
        for credit in self._credits.values():
            message.credits.append(_credit(credit))
        self._credits.clear()
        self._hungry = False

    def _take_updates(self, message: node.ConnectRequest) -> None:
        """Those that still say something: not of items whose results leave, too."""
        if not self._updates:
            return
        ended = {result.dispatch_id for result in message.results}
        while self._updates and len(message.updates) < MAX_UPDATES:
            update = self._updates.popleft()
            if update.dispatch_id not in ended:
                message.updates.append(update)

    def _take_results(self, message: node.ConnectRequest) -> None:
        limit = self.max_message_bytes - RESERVED_BYTES - MAX_DELTA_BYTES
        taken = 0
        while self._results and not self._outputs.has_unsent(self._results[0].item.dispatch_id):
            held = self._results[0]
            result = item_result(held, message.results.add())
            size = result.ByteSize()
            if size > limit:
                result.CopyFrom(too_large(held, size, limit))
                size = result.ByteSize()
            if taken and taken + size > RESULT_BYTES:
                del message.results[-1]
                return
            self._results.popleft()
            taken += size


def _nobody() -> None:
    """No session is there to be woken."""


def _credit(command: cmd.SendCredit) -> node.Credit:
    credit = node.Credit(engine_id=command.engine_id, total_inputs=command.total_inputs)
    if command.total_tokens is not None:
        credit.total_tokens = command.total_tokens
    return credit


def _extra(extra: Extra) -> types.DeltaExtra:
    assert isinstance(extra.payload, types.DeltaExtra)
    message = types.DeltaExtra()
    message.CopyFrom(extra.payload)
    message.id = extra.dispatch_id
    message.choice_index = extra.choice
    message.channel = extra.channel
    message.offset = extra.offset
    return message


def _fill_columns(message: node.ConnectRequest, deltas: list[Delta]) -> None:
    """Deltas as columns; a column that says nothing is left out."""
    if not deltas:
        return
    columns = message.deltas
    columns.ids.extend([d.dispatch_id for d in deltas])
    columns.offsets.extend([d.offset for d in deltas])
    columns.texts.extend([d.text for d in deltas])
    if any(d.tokens for d in deltas):
        columns.token_counts.extend([d.tokens for d in deltas])
    if any(d.choice for d in deltas):
        columns.choice_indexes.extend([d.choice for d in deltas])
    if any(d.channel for d in deltas):
        columns.channels.extend([d.channel for d in deltas])
