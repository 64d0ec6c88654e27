"""Would the checkers see it? The core is broken on purpose, one fence at a time.

The core's own invariants are off (`check_every`): what catches must stand outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler_service.core import (
    failover,
    relay,
    requests,
    resumption,
    sessions,
    state,
    types,
)
from scheduler_service.core.outcomes import RequestState
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import SECOND, Engine
from scheduler_service.policies import autoscale
from simulator import scenario as scenarios
from simulator.checkers import Broken, Fairness, Floor, Steadiness
from simulator.experiments import e6
from tests.simulation.flood import run_crowd, run_flood

Break = Callable[[pytest.MonkeyPatch], None]


def no_revocation(patch: pytest.MonkeyPatch) -> None:
    """Silenced attempts go on speaking."""
    patch.setattr(relay.Relay, "revoke", lambda _self, _id: None)


def first_to_speak_wins_not(patch: pytest.MonkeyPatch) -> None:
    """Two live attempts write into one output."""

    def accept(
        self: relay.Lane, choice: int, channel: int, offset: int, length: int, tokens: int
    ) -> int:
        self.output.offsets[choice * 4096 + channel] = offset + length
        self.spoke = True
        self._fresh.append(self.dispatch_id)
        return 0

    patch.setattr(relay.Lane, "accept", accept)


def no_session_fence(patch: pytest.MonkeyPatch) -> None:
    """Words of an old session count."""

    def session(self: state.State, node_id: str, epoch: int) -> types.Node | None:
        node = self.nodes.get(node_id)
        return node if node is not None and node.alive else None

    patch.setattr(state.State, "session", session)


def lost_work_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody fails over."""
    patch.setattr(failover, "retry", lambda _state, _attempt: None)


def credit_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Engines get what they have no room for."""
    patch.setattr(Engine, "free_inputs", lambda _self: 5)


def spoken_work_moves(patch: pytest.MonkeyPatch) -> None:
    """Work whose output has reached the caller is dispatched a second time."""

    def move(state: Any, attempt: types.Attempt) -> None:
        request = attempt.request
        live = attempt.dispatch_id in request.live and request.state is not RequestState.QUEUED
        if live and request.charged < request.max_attempts:
            requests.queue_again(state, request, state.now)

    patch.setattr(sessions, "_move_undelivered", move)


def guided_output_is_continued(patch: pytest.MonkeyPatch) -> None:
    """A splice where none can be right."""
    patch.setattr(resumption, "can_continue", lambda _state, _request: True)


def deadlines_pass_unseen(patch: pytest.MonkeyPatch) -> None:
    """Nothing expires."""
    patch.setattr(requests, "expire", lambda _state, _request: None)


MUTATIONS: list[tuple[Break, str]] = [
    (no_revocation, "storm"),
    (first_to_speak_wins_not, "two-speakers"),
    (no_session_fence, "two-speakers"),
    (lost_work_is_forgotten, "storm"),
    (credit_is_ignored, "storm"),
    (spoken_work_moves, "storm"),
    (guided_output_is_continued, "storm"),
    (deadlines_pass_unseen, "storm"),
]


def blind(**fields: Any) -> CoreSettings:
    """Settings under which the core never looks at itself."""
    return CoreSettings(**{**fields, "check_every": 1 << 60})


@pytest.mark.parametrize(("mutation", "name"), MUTATIONS, ids=lambda v: getattr(v, "__name__", v))
def test_each_broken_fence_is_seen_from_outside(
    monkeypatch: pytest.MonkeyPatch, mutation: Break, name: str
) -> None:
    monkeypatch.setattr(scenarios, "CoreSettings", blind)
    mutation(monkeypatch)
    for seed in range(1, 25):
        plan = scenarios.load(name)
        plan.seed = seed
        try:
            scenarios.run(plan)
        except Broken:
            return
    pytest.fail("two dozen seeds and nobody saw it")


@pytest.mark.parametrize("floor", [True, False])
def test_without_the_floor_the_bound_on_starting_is_broken(floor: bool) -> None:
    """A flood of urgent requests, and a few that are not: with the floor all keep the bound."""
    watcher = Floor(every=8)
    if floor:
        run_flood(8, watcher)
        assert 0.3 < watcher.closest <= 1.0
    else:
        with pytest.raises(Broken, match="started after"):
            run_flood(0, watcher)


@pytest.mark.parametrize(
    ("order", "options", "window"),
    [("aged", {"window": 0}, 0), ("aged", {}, 8_192), ("fair", {}, 0)],
    ids=["aged, no window", "aged", "fair"],
)
def test_tenants_that_both_wait_stay_within_the_bound(
    order: str, options: dict[str, object], window: int
) -> None:
    watcher = Fairness(window)
    run_crowd(order, options, watcher)
    few, many = watcher.served["few"], watcher.served["many"]
    assert few == pytest.approx(many, rel=0.1)
    assert 0 < watcher.closest <= 1.0


def test_without_fair_shares_the_bound_on_unfairness_is_broken() -> None:
    with pytest.raises(Broken, match="few and many are"):
        run_crowd("fifo", {}, Fairness(0))


def no_hysteresis(patch: pytest.MonkeyPatch) -> None:
    """Scaling goes down as soon as the need does."""
    down = autoscale.Law._down
    patch.setattr(
        autoscale.Law,
        "_down",
        lambda law, view, current, now: down(replace(law, hold=0, step_in=0), view, current, now),
    )


@pytest.mark.parametrize("hysteresis", [True, False])
def test_without_hysteresis_scaling_turns_too_soon(
    monkeypatch: pytest.MonkeyPatch, hysteresis: bool
) -> None:
    """The first quarter of Azure's hour of code, which comes in bursts."""
    watcher = Steadiness(300 * SECOND)
    case = e6.Case("azure-code", 30, "law", share=0.25)
    if hysteresis:
        e6.play(case, watcher)
        assert watcher.outs
    else:
        no_hysteresis(monkeypatch)
        with pytest.raises(Broken, match="after up"):
            e6.play(case, watcher)
