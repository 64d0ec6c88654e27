"""What happens in the demo, in order. Every wait is for a condition, within a bound.

1 measure   four requests one by one, then four together, on one node
2 peak      all at once: some run, some wait, one is degraded, one refused; a node is asked for;
            then SIGKILL of a primary in mid-stream
3 relief    the new node has joined: the last requests come
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchyard.cli.demo import peak
from batchyard.cli.demo.board import Board, Stuck
from batchyard.cli.demo.calls import Call, Caller
from batchyard.cli.demo.stage import (
    BACKUP,
    NODES,
    PRIMARIES,
    SCALE_OUT_QUEUE,
    SLOTS,
    SUBSTITUTE,
    Stage,
)
from batchyard.cli.demo.view import View

if TYPE_CHECKING:
    from batchyard import AsyncAdmin

MEASURE, PEAK, RELIEF = "measure", "peak", "relief"
LOAD_S = 90.0  # for models to load, on a machine that is busy
STEP_S = 60.0  # for one thing to happen
WORK_S = 90.0  # for all that was sent to be answered
MID_STREAM_TOKENS = 3


@dataclass(slots=True)
class Outcome:
    """What the acts found out by themselves."""

    one_by_one_s: float = 0.0  # the best round; 0: not measured
    together_s: float = 0.0
    together: list[Call] = field(default_factory=list)  # of the best round
    killed: str = ""  # node id; empty: none was
    caught: list[Call] = field(default_factory=list)  # in mid-stream on it
    problems: list[str] = field(default_factory=list)


class Play:
    """The acts."""

    def __init__(
        self, stage: Stage, board: Board, caller: Caller, admin: AsyncAdmin, view: View
    ) -> None:
        self.outcome = Outcome()
        self._stage = stage
        self._board = board
        self._caller = caller
        self._admin = admin
        self._view = view

    async def run(self) -> Outcome:
        """All acts. What gets stuck ends them; the checks tell what is missing then."""
        from batchyard import BatchyardError

        try:
            await self._ready()
            await self._measure()
            await self._peak()
            await self._relief()
        except (Stuck, BatchyardError) as stuck:
            self.outcome.problems.append(str(stuck))
            self._view.say(f"stuck: {stuck}")
            with contextlib.suppress(Stuck):
                await self._caller.answered(self._caller.calls, within_s=WORK_S)
        return self.outcome

    async def _ready(self) -> None:
        model = self._stage.model
        await self._board.until(
            lambda: len(self._board.serving(model)) >= NODES,
            within_s=LOAD_S,
            what=f"{NODES} nodes with {model}",
        )
        self._view.say(f"{NODES} nodes serve {model}")

    async def _measure(self) -> None:
        node, other = PRIMARIES
        self._view.act(f"One by one, or together? {other} is cordoned: all runs on {node}")
        await self._admin.cordon(other, reason="the demo measures one node")
        wishes, best_one, best_together = list(peak.MEASURED), float("inf"), float("inf")
        for _ in range(self._stage.pace.rounds):
            best_one = min(best_one, await self._one_by_one(_take(wishes, peak.ROUND_SIZE)))
            calls = self._caller.send(MEASURE, _take(wishes, peak.ROUND_SIZE))
            await self._caller.answered(calls, within_s=WORK_S)
            took_s = max(call.took_s for call in calls)
            if took_s < best_together:
                best_together, self.outcome.together = took_s, calls
        await self._admin.uncordon(other, reason="measured")
        self.outcome.one_by_one_s, self.outcome.together_s = best_one, best_together
        self._view.say(gain_text(self.outcome))

    async def _one_by_one(self, wishes: Sequence[peak.Wish]) -> float:
        began_at = time.monotonic()
        for wish in wishes:
            await self._caller.answered(self._caller.send(MEASURE, [wish]), within_s=WORK_S)
        return time.monotonic() - began_at

    async def _peak(self) -> None:
        self._view.act(
            f"The peak: {len(peak.WAVE)} requests at once, for {len(PRIMARIES)} primary nodes "
            f"with {SLOTS} slots each"
        )
        wave = self._caller.send(PEAK, peak.WAVE)
        impatient = peak.impatient(max_wait_s=self._stage.pace.max_wait_s, substitute=SUBSTITUTE)
        [impatient_call] = self._caller.send(PEAK, [impatient])
        await self._until_queued()
        self._view.say(f"{self._board.waiting} requests wait, the most urgent go first")
        await self._refused()
        victim = await self._victim(wave)
        self.outcome.killed = victim
        self.outcome.caught = [c for c in wave if c.node_id == victim and _in_mid_stream(c)]
        pid = self._stage.kill(victim)
        self._view.say(f"SIGKILL of {victim} (pid {pid}): {len(self.outcome.caught)} in mid-stream")
        await self._event("node_lost", victim)
        await self._event("scale_out")
        await self._board.until(
            lambda: impatient_call.done, within_s=STEP_S, what="the degraded request"
        )

    async def _until_queued(self) -> None:
        await self._board.until(
            lambda: self._board.waiting >= SCALE_OUT_QUEUE, within_s=STEP_S, what="a queue"
        )

    async def _refused(self) -> None:
        """Three quarters of what one request takes on an idle node: no chance behind a queue."""
        alone_s = self.outcome.one_by_one_s / peak.ROUND_SIZE
        wish = peak.hopeless(timeout_s=round(max(0.05, 0.75 * alone_s), 3))
        await self._caller.answered(self._caller.send(PEAK, [wish]), within_s=STEP_S)

    async def _victim(self, wave: Sequence[Call]) -> str:
        """Wait for a primary with work in mid-stream; the one with more of it."""

        def streaming(node_id: str) -> int:
            return sum(c.node_id == node_id and _in_mid_stream(c) for c in wave)

        await self._board.until(
            lambda: any(streaming(node_id) >= 2 for node_id in PRIMARIES),
            within_s=STEP_S,
            what="two requests in mid-stream on a primary node",
        )
        return max(PRIMARIES, key=streaming)

    async def _event(self, name: str, node_id: str = "") -> None:
        await self._board.until(
            lambda: self._board.has_event(name, node_id), within_s=STEP_S, what=f"event {name}"
        )

    async def _relief(self) -> None:
        self._view.act("Relief: wait for the new node, then the last requests")
        await self._board.until(
            lambda: self._newcomers() or self._board.has_event("scale_failed"),
            within_s=LOAD_S,
            what="the new node",
        )
        if not self._newcomers():
            raise Stuck("the new node could not be started")
        self._view.say(f"{self._newcomers()[0]} serves {self._stage.model}")
        self._caller.send(RELIEF, peak.LATE)
        await self._caller.answered(self._caller.calls, within_s=WORK_S)
        self._view.say(f"all {len(self._caller.calls)} requests have ended")

    def _newcomers(self) -> list[str]:
        return sorted(set(self._board.serving(self._stage.model)) - {*PRIMARIES, BACKUP})


def _in_mid_stream(call: Call) -> bool:
    return call.tokens >= MID_STREAM_TOKENS and not call.done


def gain_text(outcome: Outcome) -> str:
    """The measured gain, in words."""
    count, one, together = peak.ROUND_SIZE, outcome.one_by_one_s, outcome.together_s
    return (
        f"{count} requests one by one {one:.2f} s, {count} together {together:.2f} s: "
        f"{one / together:.2f} times the throughput"
    )


def _take(wishes: list[peak.Wish], count: int) -> list[peak.Wish]:
    taken, wishes[:count] = wishes[:count], []
    return taken
