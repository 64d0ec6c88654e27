"""While nodes, network and scheduler fail, no promise is broken; mended, all work comes to its end.

Fixed seeds, and one that is new in each run and printed: `python -m simulator NAME --seed N` runs
it again, with a log (`--log FILE`). A seed that failed once belongs into `seeds.txt`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import scenario as scenarios

SEEDS = [
    line.split()
    for line in Path(__file__).with_name("seeds.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
NAMES = scenarios.names()


def run(name: str, seed: int) -> scenarios.Outcome:
    plan = scenarios.load(name)
    plan.seed = seed
    return scenarios.run(plan)


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_promises_hold_for_known_seeds(name: str, seed: str) -> None:
    run(name, int(seed))


@pytest.mark.parametrize("name", NAMES)
def test_promises_hold_for_a_fresh_seed(name: str, fresh_seed: int) -> None:
    run(name, fresh_seed)


def test_storms_hit_what_they_are_meant_to_hit() -> None:
    """A storm in which nothing fails over would prove nothing."""
    done = run("storm", 7)
    events = done.metrics.events
    assert events["node_lost"] >= 3
    assert events["failover"] >= 5
    assert events["late_result"] >= 3
    assert done.network.broken >= 3
    assert done.accounts.delivered > 10_000
    resumed = [s for s in done.accounts.stories.values() if any(s.dispatched.values())]
    assert resumed, "nothing was continued from partial output"


def test_a_scenario_s_faults_do_not_depend_on_each_other() -> None:
    """Leaving one kind out of a storm changes no other kind's faults."""
    plan = scenarios.load("storm")
    storm = plan.storm
    assert storm is not None
    nodes = ["n0", "n1", "n2"]
    whole = storm.draw(nodes, 3)
    fewer = {kind: every for kind, every in storm.every.items() if kind != "crash"}
    rest = scenarios.Storm(every=fewer, lasts=storm.lasts, until=storm.until).draw(nodes, 3)
    assert rest == [fault for fault in whole if fault.kind != "crash"]
    assert len({fault.kind for fault in whole}) >= 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: [{count: 1, slotz: 3}]", "slotz"),
        ("nodes: []\nheal_at: 45", "'?45'? is not a duration"),
        ("- 1", "holds no scenario"),
        ("nodes: [", "is not YAML"),
        ("about: x", "nodes"),
    ],
)
def test_what_is_no_scenario_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(scenarios.ScenarioError, match=why):
        scenarios.load(path)
