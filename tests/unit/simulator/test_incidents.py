"""Incidents are read as users write them and happen to the nodes that they name."""

from __future__ import annotations

import pytest

from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies import build
from simulator import incidents
from simulator.engines import IndependentEngine
from simulator.fleet import Fleet, Group
from simulator.incidents import Incident
from simulator.kinds import NodeKind
from simulator.scenario import ScenarioError
from simulator.world import World, WorldSettings

HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "incident"),
    [
        ("2@600s", Incident(node=2, at=600 * SECOND)),
        ("0@1.5m+2m", Incident(node=0, at=90 * SECOND, back_after=120 * SECOND)),
        ("7@10s*3", Incident(node=7, at=10 * SECOND, slowness=3.0)),
    ],
)
def test_incidents_are_read(text: str, incident: Incident) -> None:
    assert incidents.parse(text) == incident


@pytest.mark.parametrize("text", ["2", "n2@5s", "2@5", "2@5s+", "2@5s*"])
def test_what_is_no_incident_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"2@600s|duration"):
        incidents.parse(text)


def test_nodes_die_come_back_and_slow_down_on_time() -> None:
    world = World(WorldSettings(), build())
    kind = NodeKind(name="n", make=lambda host: IndependentEngine(host, 1), slots=1)
    fleet = Fleet(world, [Group(3, kind)])
    incidents.plan([incidents.parse(t) for t in ("0@5s", "1@5s+20s", "2@5s*4", "9@5s")])(
        world, fleet
    )
    dead, back, slow = fleet.nodes.values()
    world.advance_to(10 * SECOND)
    assert [node.up_since >= 0 for node in (dead, back, slow)] == [False, False, True]
    assert slow.slowness == 4.0
    world.advance_to(40 * SECOND)
    assert [node.up_since >= 0 for node in (dead, back, slow)] == [False, True, True]
    assert (dead.uptime(), back.uptime()) == (5 * SECOND, 20 * SECOND)


def test_usual_failures_come_at_their_rate() -> None:
    found = incidents.usual(1_000, 30 * 24 * HOUR, seed=2)
    deaths = [i for i in found if not i.slowness]
    assert len(deaths) == pytest.approx(1_000 * 30 / 264, rel=0.25)
    assert all(60 * SECOND <= i.back_after <= 300 * SECOND for i in deaths)
    slow = [i for i in found if i.slowness]
    assert 3 <= len(slow) <= 20
    assert all(i.at == 0 and i.back_after == NEVER for i in slow)
    assert found == incidents.usual(1_000, 30 * 24 * HOUR, seed=2)
