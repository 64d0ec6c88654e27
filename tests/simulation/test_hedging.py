"""What hedging buys, in simulated time: nodes freeze for a moment, too short to be found out."""

from __future__ import annotations

import os

from scheduler_service.core.settings import Hedge
from scheduler_service.core.types import MILLISECOND, SECOND
from simulator import scenario as scenarios
from simulator.faults import Storm
from simulator.scenario import Load, NodeGroup, Outcome, Scenario
from simulator.summary import summarise

LASTS = int(os.environ.get("HEDGING_SECONDS", "120"))
MOMENTS = Storm(
    every={"freeze": 2 * SECOND},
    lasts=(500 * MILLISECOND, 2500 * MILLISECOND),
    until=LASTS * SECOND,
)


def run(hedge: Hedge | None) -> Outcome:
    """Short streams on eight nodes, one of which freezes every two seconds."""
    load = Load(
        rate=8, seconds=LASTS, prompt=1_000, output=20, timeouts=0, leavers=0, jobs=0, stream=1,
        guided=0,
    )  # fmt: skip
    plan = Scenario(
        name="moments",
        nodes=[NodeGroup(count=8, slots=4)],
        load=load,
        storm=MOMENTS,
        hedge=hedge,
        heal_at=LASTS * SECOND,
    )
    return scenarios.run(plan)


def test_rivals_cut_the_tail_of_first_outputs_for_a_few_attempts_more() -> None:
    """Deterministic: the same seed, the same freezes."""
    found = {}
    for name, hedge in (("off", None), ("2 %", Hedge()), ("10 %", Hedge(share=0.1))):
        done = run(hedge)
        ttft = summarise(done.metrics).all.ttft
        events = done.metrics.events
        found[name] = ttft.p99
        print(
            f"{name}: first output p50 {ttft.p50:.3f} s, p90 {ttft.p90:.3f} s, p99 {ttft.p99:.3f}"
            f" s; {events['hedged']} rivals to {events['submit']} requests, "
            f"{done.world.scheduler.state.totals.hedges_won} won"
        )
        assert events["hedged"] <= (hedge.share if hedge else 0) * events["submit"]
    assert found["2 %"] < found["off"]
    assert found["10 %"] < 0.8 * found["off"]
