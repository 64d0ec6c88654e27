"""The scaling law does not swing, whatever the load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.demand import Demand
from scheduler_service.core.interfaces import ScaleView
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies.autoscale import Law

# Stretches of seconds with an arrival rate each, and how many wait in them.
LOADS = st.lists(
    st.tuples(st.integers(1, 400), st.integers(0, 60), st.sampled_from([0, 0, 1, 5, 500])),
    min_size=1,
    max_size=12,
)


@given(LOADS, st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 30, 120]))
def test_turn_from_up_to_down_takes_five_minutes(
    stretches: list[tuple[int, int, int]], least: int, spare: int, cold: int
) -> None:
    """And no step leaves the bounds. Nodes join after the cold start."""
    law, demand = Law(), Demand()
    nodes, starting = 1, []  # type: tuple[int, list[int]]
    last_out = last_in = -NEVER
    now = 0
    for length, rate, waiting in stretches:
        for _ in range(length):
            now += SECOND
            demand.add(now, rate * SECOND)
            nodes += sum(at <= now for at in starting)
            starting = [at for at in starting if at > now]
            erlangs = demand.look(now)
            view = ScaleView(
                "m", waiting, 4 * SECOND if waiting else 0, nodes, len(starting), rate, nodes * 4,
                least, 20, last_out, last_in, NEVER, erlangs, demand.peak(), now, 4,
                waiting * SECOND, 0, cold * SECOND, spare,
            )  # fmt: skip
            plan = law.plan(view, now)
            current = nodes + len(starting)
            if plan is None:
                continue
            assert plan.desired != current
            if plan.desired > current:
                assert plan.desired <= min(20, current + max(4, current))
                last_out = now
                starting += [now + cold * SECOND] * (plan.desired - current)
            else:
                assert now - last_out >= 300 * SECOND
                assert now - last_in >= 60 * SECOND
                assert plan.desired >= max(least, current - max(1, current // 10))
                assert not waiting
                last_in = now
                leave = current - plan.desired
                nodes, starting = nodes - max(0, leave - len(starting)), starting[leave:]
