"""What has arrived of a streamed output, and does the next piece fit?

A position is (choice, channel, offset). Offsets are dense and count UTF-8 bytes, or token ids
where a request asked for ids only, so:

    have:      |=========|
    delta:               |----|     fits
    delta:         |----------|     overlaps (after a re-attach): its head is cut off
    delta:                 |----|   a gap: text is missing, which is an error, never hidden
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from batchyard.errors import ProtocolError
from batchyard.results import Result, ToolCall, Usage, tool_calls_of
from batchyard.v1 import (
    AttachPoint,
    DeltaExtra,
    InferenceResult,
    Started,
    StreamOffset,
    TokenDeltas,
    TokenLogprob,
)

__all__ = ["Delta", "OutputBuffer", "StreamEvent", "read_deltas"]

_T = TypeVar("_T")

TEXT, REASONING, TOOL_BASE = 0, 1, 16

# index in the message, offset, text, choice, channel, output tokens, token ids
Delta = tuple[int, int, str, int, int, int, tuple[int, ...]]


@dataclass(slots=True)
class StreamEvent:
    """A piece of output. `text` is empty in events that carry something else.

    - `text`, `reasoning`: of choice `choice`, from byte `offset` on.
    - `tool_call`: opens tool call `tool_index`; its arguments follow as `tool_arguments`.
    - `usage`: totals so far, `logprobs`: of the tokens from `offset` on.
    - `restarted`: drop what you have; the output starts anew. Only with `restarts=True` or
      `resume="restart"`.
    """

    text: str = ""
    reasoning: str = ""
    tool_arguments: str = ""
    choice: int = 0
    offset: int = 0
    tokens: int = 0
    token_ids: tuple[int, ...] = ()
    tool_index: int = 0
    tool_call: ToolCall | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    usage: Usage | None = None
    restarted: bool = False


class OutputBuffer:
    """One output: its id, and per (choice, channel) its text and where it ends."""

    __slots__ = ("_ends", "_pieces", "_tool_calls", "output_id")

    def __init__(self) -> None:
        self.output_id = 0
        self._ends: dict[tuple[int, int], int] = {}
        self._pieces: dict[tuple[int, int], list[str]] = {}
        self._tool_calls: dict[tuple[int, int], ToolCall] = {}

    @property
    def begun(self) -> bool:
        """Whether anything has arrived."""
        return bool(self._ends)

    def text(self, choice: int = 0, channel: int = TEXT) -> str:
        return "".join(self._pieces.get((choice, channel), ()))

    def start(self, started: Started) -> bool:
        """Takes a Started; True if it threw away what was here."""
        if started.restarted:
            dropped = self.begun
            self._ends.clear()
            self._pieces.clear()
            self._tool_calls.clear()
            self.output_id = started.output_id
            return dropped
        if self.begun and self.output_id not in (0, started.output_id):
            raise _violation(
                f"output {self.output_id} became {started.output_id} without a restart"
            )
        self.output_id = started.output_id
        return False

    def add(self, delta: Delta) -> StreamEvent | None:
        """Takes a delta; None if all of it was here already."""
        _, offset, text, choice, channel, tokens, token_ids = delta
        key = (choice, channel)
        end = self._ends.get(key, 0)
        if offset != end:
            if offset > end:
                raise _violation(
                    f"output is missing: choice {choice}, channel {channel} goes on at {offset},"
                    f" {end} had arrived"
                )
            text, token_ids = _cut(text, token_ids, end - offset)
            offset, tokens = end, 0
            if not text and not token_ids:
                return None
        size = _size(text) if text else len(token_ids)
        self._ends[key] = end + size
        if text:
            pieces = self._pieces.get(key)
            if pieces is None:
                self._pieces[key] = [text]
            else:
                pieces.append(text)
        if channel == TEXT:
            return StreamEvent(text, "", "", choice, offset, tokens, token_ids)
        if channel == REASONING:
            return StreamEvent("", text, "", choice, offset, tokens, token_ids)
        return StreamEvent(
            "", "", text, choice, offset, tokens, token_ids, tool_index=channel - TOOL_BASE
        )

    def add_extra(self, extra: DeltaExtra) -> StreamEvent:
        """Takes what only a few deltas carry."""
        event = StreamEvent(choice=extra.choice_index, offset=extra.offset)
        if extra.HasField("tool_call"):
            head = extra.tool_call
            event.tool_index = head.index
            event.tool_call = ToolCall(head.id, head.name, "", head.index)
            self._tool_calls[extra.choice_index, head.index] = event.tool_call
        if extra.HasField("usage"):
            event.usage = Usage.from_proto(extra.usage)
        event.logprobs = tuple(extra.logprobs)
        return event

    def attach_point(self) -> AttachPoint | None:
        """Where a re-attaching call wants to go on; None: from the start."""
        if not self.output_id:
            return None
        return AttachPoint(
            output_id=self.output_id,
            offsets=[
                StreamOffset(choice_index=choice, channel=channel, offset=end)
                for (choice, channel), end in self._ends.items()
            ],
        )

    def result(self, proto: InferenceResult) -> Result:
        """The whole; a result that brings its own outputs (a replay) speaks for itself."""
        if proto.outputs and not self.begun:
            return Result.from_proto(proto)
        calls = tuple(self._finished_tool_calls())
        if not calls and proto.outputs:
            calls = tool_calls_of(proto.outputs[0])
        return Result(proto, self.text(), self.text(channel=REASONING), calls)

    def complete(self, proto: InferenceResult) -> list[StreamEvent]:
        """Takes what only the result brings: the end of an output that was cut off, and whose
        request had ended before its caller was back. Of another output, or where nothing had
        arrived (it shares a request that does not stream), all of it.
        """
        if not proto.replayed and (self.begun or not proto.outputs):
            return []
        events: list[StreamEvent | None] = []
        if proto.output_id != self.output_id and self.start(
            Started(output_id=proto.output_id, restarted=True)
        ):
            events.append(StreamEvent(restarted=True))
        for output in proto.outputs:
            texts = [(TEXT, output.text), (REASONING, output.reasoning)]
            texts += [(TOOL_BASE + c.index, c.arguments_json) for c in output.tool_calls]
            events += [
                self.add((0, 0, text, output.index, channel, 0, ()))
                for channel, text in texts
                if text
            ]
        return [event for event in events if event is not None]

    def _finished_tool_calls(self) -> Iterator[ToolCall]:
        for (choice, index), head in sorted(self._tool_calls.items()):
            if choice == 0:
                arguments = self.text(0, TOOL_BASE + index)
                yield ToolCall(head.id, head.name, arguments, index)


def read_deltas(deltas: TokenDeltas) -> Iterator[Delta]:
    """The rows of a message of columns; ProtocolError where their lengths do not fit."""
    offsets = list(deltas.offsets)
    count = len(offsets)
    texts = _column(deltas.texts, count, "")
    tokens = _column(deltas.token_counts, count, 0)
    choices = _column(deltas.choice_indexes, count, 0)
    channels = _column(deltas.channels, count, 0)
    if not deltas.token_ids:
        for index in range(count):
            yield (
                index, offsets[index], texts[index], choices[index], channels[index],
                tokens[index], (),
            )  # fmt: skip
        return
    id_counts = _column(deltas.token_id_counts, count, 0)
    if sum(id_counts) != len(deltas.token_ids):
        raise _violation("token_ids does not have as many entries as token_id_counts says")
    at = 0
    for index in range(count):
        ids = tuple(deltas.token_ids[at : at + id_counts[index]])
        at += id_counts[index]
        yield (
            index, offsets[index], texts[index], choices[index], channels[index],
            tokens[index], ids,
        )  # fmt: skip


def _column(column: Sequence[_T], count: int, default: _T) -> Sequence[_T]:
    if not column:
        return [default] * count
    if len(column) != count:
        raise _violation(f"a column of the deltas has {len(column)} entries, not {count}")
    return list(column)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _cut(text: str, token_ids: tuple[int, ...], overlap: int) -> tuple[str, tuple[int, ...]]:
    """What is left of a delta whose first `overlap` bytes (or ids, without text) are known."""
    if not text:
        return "", token_ids[overlap:]
    try:
        # Which of the ids belong to the rest cannot be said.
        return text.encode()[overlap:].decode(), ()
    except UnicodeDecodeError as error:
        raise _violation("a delta begins inside a character that had arrived") from error


def _violation(problem: str) -> ProtocolError:
    return ProtocolError(problem, reason="PROTOCOL_VIOLATION")
