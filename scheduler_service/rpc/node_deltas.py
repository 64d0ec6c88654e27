"""How does output get from a node's message to its clients?

For every delta the relay says whether it may go on and how much of it is new; then it goes straight
to the sink of its output. This is the hottest path of the scheduler: a row costs about 1 us, no
event is made for it, and the core hears only of those that speak for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final

from google.protobuf.message import DecodeError

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.relay import GAP, STALE, Lane, Output, Relay
from scheduler_service.core.types import Request
from scheduler_service.rpc.convert_node import SessionRefused, check_length, violation

MAX_EXTRAS: Final = 1024
FIRST_TOOL_CHANNEL: Final = 16
LAST_TOOL_CHANNEL: Final = 16 + 1023
MAX_CHOICES: Final = 128  # the protocol's, of GenerationParams.n

_RAW: Final = inference_pb2.InferenceRequest.RAW_FIELD_NUMBER
_COLUMNS: Final = ("texts", "token_counts", "token_id_counts", "choice_indexes", "channels")


class DeltaGate:
    """Lets one session's deltas through.

    `on_fault` hears of exceptions of sinks, `on_foreign` of ids that are not live here.
    """

    def __init__(
        self,
        epoch: int,
        on_fault: Callable[[str, Exception], None],
        on_foreign: Callable[[int], None] | None = None,
    ) -> None:
        self._epoch = epoch
        self._on_fault = on_fault
        self._on_foreign = on_foreign
        self._counts_ids: dict[int, bool] = {}  # by dispatch id: asked for ids without text

    def forget(self, dispatch_ids: Iterable[int]) -> None:
        """The items ended."""
        if self._counts_ids:
            for dispatch_id in dispatch_ids:
                self._counts_ids.pop(dispatch_id, None)

    def take(self, deltas: types_pb2.TokenDeltas, relay: Relay, begun: list[int]) -> None:
        """Deliver what is new, and add to `begun` the dispatch ids that speak for the first time.

        Raises:
            SessionRefused: its columns are not what the protocol says, and nothing was delivered;
                or text is missing before a delta: what came before it has been delivered, and is
                in `begun`.
        """
        check_columns(deltas)
        choices = deltas.choice_indexes[:]
        if choices:
            self._check_choices(zip(deltas.ids, choices, strict=True), relay, "choice_indexes")
        if deltas.extras:
            rows = [(extra.id, extra.choice_index) for extra in deltas.extras]
            self._check_choices(rows, relay, "extras")
        for extra in deltas.extras:
            self._take_extra(extra, relay, begun)
        at = 0
        token_ids = deltas.token_ids[:]
        lanes, epoch = relay.lanes, self._epoch
        for dispatch_id, offset, text, tokens, ids, choice, channel in zip(
            deltas.ids[:],
            deltas.offsets[:],
            deltas.texts[:] or repeat(""),
            deltas.token_counts[:] or repeat(0),
            deltas.token_id_counts[:] or repeat(0),
            choices or repeat(0),
            deltas.channels[:] or repeat(0),
            strict=False,
        ):
            row_ids: Sequence[int] = ()
            if ids:
                row_ids = token_ids[at : at + ids]
                at += ids
            lane = lanes.get(dispatch_id)
            if lane is None or lane.attempt.engine.node.epoch != epoch:  # `_lane`, written out
                self._foreign(dispatch_id, relay)
                continue
            output = lane.output
            if not text:
                length = ids if ids and self._counts(lane) else 0
            elif text.isascii():
                length = len(text)
            else:
                data = text.encode()
                length = len(data)
                if offset not in output.offsets.values():
                    _check_cut(lane, choice, channel, offset, data)
            silent = not lane.spoke
            had = lane.accept(choice, channel, offset, length, tokens)
            if had:
                if had == STALE:
                    relay.stale += 1
                    continue
                if had == GAP:
                    raise _gap(dispatch_id, choice, channel, offset)
                if had == length:
                    continue
                offset += had
                text, row_ids = _rest(text, row_ids, had)
            elif not length and _position(output, choice, channel) != offset:
                continue  # a repeat of a row without text
            if silent:
                begun.append(dispatch_id)
            try:
                output.sink.deliver(choice, channel, offset, text, tokens, row_ids)
            except Exception as error:  # one client's sink must not stop the other items
                self._on_fault("a sink did not take a delta", error)

    def _check_choices(self, rows: Iterable[tuple[int, int]], relay: Relay, column: str) -> None:
        """Whether each (dispatch id, choice) is of a choice that its request asked for. Of ids that
        are not its own nothing is let through anyway.

        Raises:
            SessionRefused: one is not.
        """
        for dispatch_id, choice in rows:
            if not choice:
                continue
            lane = relay.lanes.get(dispatch_id)
            if lane is None or lane.attempt.engine.node.epoch != self._epoch:
                continue
            most = most_choices(lane.attempt.request)
            if choice >= most:
                raise violation(
                    f"dispatch {dispatch_id} has output of choice {choice}; its request asked for "
                    f"{most}, numbered from 0 on",
                    f"deltas.{column}",
                    dispatch_id=dispatch_id,
                )

    def _lane(self, dispatch_id: int, relay: Relay) -> Lane | None:
        """The lane, if it is live and this session's; else the delta is counted as stale."""
        lane = relay.lanes.get(dispatch_id)
        if lane is None or lane.attempt.engine.node.epoch != self._epoch:
            self._foreign(dispatch_id, relay)
            return None
        return lane

    def _foreign(self, dispatch_id: int, relay: Relay) -> None:
        relay.stale += 1
        if self._on_foreign is not None:
            self._on_foreign(dispatch_id)

    def _counts(self, lane: Lane) -> bool:
        """Whether its offsets count token ids; looked up once, for rows with ids and no text."""
        known = self._counts_ids.get(lane.dispatch_id)
        if known is None:
            try:
                request = inference_pb2.InferenceRequest.FromString(lane.output.sink.request_bytes)
                known = request.output.omit_text
            except DecodeError:  # checked when it came in; then text is what counts
                known = False
            self._counts_ids[lane.dispatch_id] = known
        return known

    def _take_extra(self, extra: types_pb2.DeltaExtra, relay: Relay, begun: list[int]) -> None:
        """Deliver a rare row, unless the client has it. Usage alone does not count as speaking."""
        lane = self._lane(extra.id, relay)
        if lane is None:
            return
        silent = not lane.spoke
        have = _position(lane.output, extra.choice_index, extra.channel)
        if extra.HasField("tool_call") or extra.logprobs:
            if lane.accept(extra.choice_index, extra.channel, 0, 0, 0) == STALE:
                relay.stale += 1
                return
            if silent:
                begun.append(extra.id)
            if have is not None and extra.offset < have + extra.HasField("tool_call"):
                return  # repeated after a reconnect
        elif lane.output.speaker != extra.id:
            relay.stale += 1
            return
        try:
            lane.output.sink.deliver_extra(extra)
        except Exception as error:  # as above
            self._on_fault("a sink did not take an extra row", error)


def most_choices(request: Request) -> int:
    """Choices, or texts, that it asked for; those that its body alone knows (an engine's own, or
    one that is not here yet) may be as many as the protocol allows.
    """
    traits = request.traits
    if not request.max_attempts or (traits is not None and traits.input_kind == _RAW):
        return MAX_CHOICES
    return request.inputs


def check_columns(deltas: types_pb2.TokenDeltas) -> None:
    """Whether the message is what the protocol says of TokenDeltas.

    Raises:
        SessionRefused: it is not.
    """
    rows = len(deltas.offsets)
    check_length(deltas.offsets, "deltas.offsets")
    if len(deltas.ids) != rows:
        raise violation(f"deltas.ids has {len(deltas.ids)} entries for {rows} deltas", "deltas.ids")
    for name in _COLUMNS:
        length = len(getattr(deltas, name))
        if length and length != rows:
            raise violation(
                f"deltas.{name} has {length} entries for {rows} deltas", f"deltas.{name}"
            )
    if len(deltas.token_ids) != sum(deltas.token_id_counts):
        raise violation(
            f"deltas.token_ids has {len(deltas.token_ids)} entries, "
            f"deltas.token_id_counts sums up to {sum(deltas.token_id_counts)}",
            "deltas.token_ids",
        )
    if len(deltas.extras) > MAX_EXTRAS:
        raise violation(f"deltas.extras has more than {MAX_EXTRAS} rows", "deltas.extras")
    for channel in {*deltas.channels, *(extra.channel for extra in deltas.extras)}:
        if 1 < channel < FIRST_TOOL_CHANNEL or channel > LAST_TOOL_CHANNEL:
            told = f"channel {channel} does not exist"
            raise violation(told, "deltas.channels", dispatch_id=_whose(deltas, channel))


def _whose(deltas: types_pb2.TokenDeltas, channel: int) -> int:
    """The first id that speaks on the channel."""
    rows = zip(deltas.ids, deltas.channels, strict=False)
    extras = ((extra.id, extra.channel) for extra in deltas.extras)
    return next(i for i, where in (*rows, *extras) if where == channel)


def _position(output: Output, choice: int, channel: int) -> int | None:
    """Where the client's copy ends; None: it has nothing of that channel."""
    for known_choice, known_channel, end in output.positions():
        if known_choice == choice and known_channel == channel:
            return end
    return None


def _check_cut(lane: Lane, choice: int, channel: int, offset: int, data: bytes) -> None:
    """A delta that repeats a part must be cut between two code points."""
    cut = (_position(lane.output, choice, channel) or 0) - offset
    if 0 < cut < len(data) and data[cut] & 0xC0 == 0x80:
        raise violation(
            f"a delta at offset {offset} differs from what was sent before: its byte {cut}, where "
            "the new text would begin, is inside a code point",
            "deltas.texts",
            dispatch_id=lane.dispatch_id,
        )


def _rest(text: str, token_ids: Sequence[int], had: int) -> tuple[str, Sequence[int]]:
    """What is new of a delta of which the client has `had` units.

    Ids that come with text cannot be told apart, so a cut delta loses them.
    """
    if not text:
        return "", token_ids[had:]
    return text.encode()[had:].decode(), ()


def _gap(dispatch_id: int, choice: int, channel: int, offset: int) -> SessionRefused:
    return violation(
        f"output is missing before offset {offset} of dispatch {dispatch_id}, "
        f"choice {choice}, channel {channel}",
        "deltas.offsets",
        dispatch_id=dispatch_id,
    )
