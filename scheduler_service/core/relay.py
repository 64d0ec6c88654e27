"""Whose output may reach the client, and from which offset on?

Beside `step`, because tokens are too many for it. The core opens a lane per dispatch id and revokes
it; the edge calls `accept` for every delta of a node. A request's `Output` is what its client has
been sent: lanes that continue it share it, so

    at most one attempt's text reaches the client at any offset.

    lane 1 (node a)   |0====12|            revoked when its node is lost
    lane 2 (node b)           |12=====30|  CONTINUE: goes on at the offset the client has
    lane 3 (node c)   |0===...             two live attempts: the first to speak holds the
                                           output, the others are STALE from then on

The first word of a lane is noted in `Relay.fresh`. A step looks there before all else, so that no
timer or event of that step takes a speaker for a silent attempt, however late its `OutputsBegun`.

Positions are (choice, channel, offset) as in the protocol's `TokenDeltas`. Pure: no I/O.
"""

from __future__ import annotations

from typing import Any, Final

STALE: Final = -1  # not live, or another attempt holds the output: drop and count
GAP: Final = -2  # text is missing before it: the peer broke the protocol

_CHANNELS: Final = 1 << 12  # channels are below 16 + 1024


class Output:
    """What one client has been sent of one output of its request."""

    __slots__ = ("begun_at", "offsets", "output_id", "sink", "speaker", "tokens")

    lacks = False  # its client may have more of it than has been sent here

    def __init__(self, output_id: int, sink: Any) -> None:
        self.output_id = output_id
        self.sink = sink  # the edge's own
        self.speaker = 0  # dispatch id that holds it; 0: nobody has spoken yet
        self.offsets: dict[int, int] = {}  # next offset by choice * 4096 + channel
        self.tokens = 0
        self.begun_at = 0  # instant of its first output; 0: there was none

    @property
    def begun(self) -> bool:
        """Whether anything has been sent."""
        return any(self.offsets.values())

    def positions(self) -> list[tuple[int, int, int]]:
        """(choice, channel, next offset) of everything sent so far."""
        return [(key // _CHANNELS, key % _CHANNELS, end) for key, end in self.offsets.items()]


class ReturnedOutput(Output):
    """One that a former scheduler has sent its client some of; all of that comes again."""

    __slots__ = ("_written",)

    def __init__(self, output_id: int, sink: Any, written: int) -> None:
        super().__init__(output_id, sink)
        self._written = written  # units in all, when its node came back

    @property
    def lacks(self) -> bool:  # type: ignore[override]
        """Whether some of it has not come again yet: then nobody else may go on with it."""
        return sum(self.offsets.values()) < self._written


class Lane:
    """The right of one live attempt to speak."""

    __slots__ = ("_fresh", "attempt", "dispatch_id", "output", "spoke")

    def __init__(self, dispatch_id: int, output: Output, attempt: Any, fresh: list[int]) -> None:
        self.dispatch_id = dispatch_id
        self.output = output
        self.attempt = attempt
        self.spoke = False  # something of it was let through: the edge then posts OutputsBegun
        self._fresh = fresh

    def accept(self, choice: int, channel: int, offset: int, length: int, tokens: int) -> int:
        """Take one delta of `length` units at `offset`.

        Returns how many leading units the client has already (0: all of it is new, `length`: none
        is), or STALE, or GAP. What is new counts as sent.
        """
        output = self.output
        if output.speaker and output.speaker != self.dispatch_id:
            return STALE
        key = choice * _CHANNELS + channel
        have = output.offsets.get(key, 0)
        if offset > have:
            return GAP  # and it claims nothing: a sibling may be right
        if not self.spoke:
            self.spoke = True
            output.speaker = self.dispatch_id
            self._fresh.append(self.dispatch_id)
        if offset == have:  # the usual case
            output.offsets[key] = have + length
            output.tokens += tokens
            return 0
        end = offset + length
        if end <= have:
            return length
        output.offsets[key] = end
        output.tokens += tokens
        return have - offset


class Relay:
    """All live lanes. The core opens and revokes; the edge looks up."""

    __slots__ = ("deltas", "fresh", "lanes", "stale")

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.fresh: list[int] = []  # dispatch ids that spoke for the first time since the last step
        self.stale = 0  # deltas dropped because their id was not live
        self.deltas = 0  # that came, without those

    def open(self, dispatch_id: int, output: Output, attempt: Any, *, sole: bool) -> None:
        """Let `dispatch_id` speak. `sole`: it is the only live attempt, so it holds the output;
        else the first of them to speak will, or has done so already.
        """
        holder = None if sole else self.lanes.get(output.speaker)
        if holder is None or not holder.spoke:
            output.speaker = dispatch_id if sole else 0
        self.lanes[dispatch_id] = Lane(dispatch_id, output, attempt, self.fresh)

    def revoke(self, dispatch_id: int) -> Lane | None:
        """Silence it, now and for ever; what it had. Unknown ids are ignored."""
        lane = self.lanes.pop(dispatch_id, None)
        if lane is not None and lane.output.speaker == dispatch_id:
            lane.output.speaker = 0
        return lane

    def accept(
        self, dispatch_id: int, choice: int, channel: int, offset: int, length: int, tokens: int = 0
    ) -> int:
        """`Lane.accept` by id; STALE, and counted, where the id is not live."""
        lane = self.lanes.get(dispatch_id)
        verdict = STALE if lane is None else lane.accept(choice, channel, offset, length, tokens)
        if verdict == STALE:
            self.stale += 1
        return verdict
