"""How does an agent leave: what runs is finished, the rest goes back, and when does it exit?"""

from __future__ import annotations

import pytest

from node_agent.core import OutcomeKind
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from tests.unit.agent.agent_world import (
    SECOND,
    TERM,
    World,
    batch,
    credit,
    item,
    of,
    results,
    started,
)  # fmt: skip


def drain(grace_s: float | None, *, own: bool = True, terminate: bool = True) -> ev.DrainRequested:
    grace_ns = None if grace_s is None else int(grace_s * SECOND)
    return ev.DrainRequested(grace_ns=grace_ns, own=own, terminate=terminate, reason="test")


def test_a_drain_returns_what_never_started_and_finishes_what_runs() -> None:
    """Behaviour 107: cordon, finish, leave."""
    world = World(slots=1, look_ahead=1)
    world.ready()
    world.step(batch(item(1), item(2)))
    out = world.step(drain(10))
    assert [c.grace_ns for c in of(cmd.SendDrain, out)] == [10 * SECOND]
    assert (results(out)[2].reason, results(out)[2].kind) == ("NODE_DRAINING", OutcomeKind.REFUSED)
    assert results(world.step(batch(item(3))))[3].reason == "NODE_DRAINING"
    assert credit(world.finish(1)) is None
    assert of(cmd.Exit, world.commands) == []
    assert of(cmd.Exit, world.step(ev.ResultsAcked(3)))


def test_at_the_end_of_the_grace_the_rest_goes_back_as_refused() -> None:
    """Behaviour 108: a stuck item does not hold up a drain."""
    world = World(slots=2)
    world.ready()
    world.step(batch(item(1), item(2)))
    world.step(drain(10))
    out = world.advance(10)
    assert len(of(cmd.CancelItem, out)) == 2
    assert results(world.finish(1, complete=False))[1].kind is OutcomeKind.REFUSED
    assert results(world.advance(1))[2].reason == "NODE_DRAINING"
    assert of(cmd.Exit, world.step(ev.ResultsAcked(2)))


def test_an_idle_agent_exits_at_once_and_only_once() -> None:
    world = World()
    world.ready()
    assert of(cmd.Exit, world.step(drain(10)))
    assert of(cmd.Exit, world.advance(20)) == []
    assert of(cmd.Exit, world.step(drain(0))) == []


def test_results_that_nobody_acknowledges_hold_up_the_exit_for_a_moment_only() -> None:
    """Behaviour 44: abandoned work does not hold up a drain."""
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.finish(1)
    world.step(ev.SessionClosed(), drain(10))
    assert of(cmd.Exit, world.advance(1.9)) == []
    assert of(cmd.Exit, world.advance(0.2))


def test_a_second_signal_ends_the_drain_now() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(60))
    assert of(cmd.CancelItem, world.step(drain(0)))


def test_a_drain_is_told_again_to_a_new_session() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(10), ev.SessionClosed())
    world.advance(4)
    assert [c.grace_ns for c in of(cmd.SendDrain, world.connect())] == [6 * SECOND]


def test_a_schedulers_drain_without_exit_ends_with_its_next_batch() -> None:
    world = World(slots=2)
    world.ready()
    world.step(batch(item(1)))
    out = world.step(drain(None, own=False, terminate=False))
    assert of(cmd.SendDrain, out) == []
    world.finish(1)
    assert of(cmd.Exit, world.advance(100)) == []
    assert started(world.step(batch(item(2)))) == [2]


def test_a_schedulers_drain_with_exit_ends_in_one() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(None, own=False, terminate=True))
    world.finish(1)
    assert of(cmd.Exit, world.step(ev.ResultsAcked(1)))


def test_a_lifted_drain_is_as_if_it_had_never_been() -> None:
    """Its exit and its limit are gone, credit is granted again, and work is taken."""
    world = World(slots=2)
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(10, own=False, terminate=True))
    world.step(ev.DrainLifted())
    assert of(cmd.CancelItem, world.advance(20)) == []
    assert credit(world.finish(1)) == 3
    assert started(world.step(batch(item(2)))) == [2]
    world.finish(2)
    assert of(cmd.Exit, world.step(ev.ResultsAcked(2))) == []


@pytest.mark.parametrize("also_own", [True, False])
def test_what_cannot_be_lifted_goes_on(also_own: bool) -> None:
    """The agent's own drain, and one after which it exits already."""
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(None, own=False, terminate=True))
    if also_own:
        world.step(drain(60), ev.DrainLifted())
    world.finish(1)
    assert of(cmd.Exit, world.step(ev.ResultsAcked(1)))
    world.step(ev.DrainLifted())
    assert results(world.step(batch(item(2))))[2].reason == "NODE_DRAINING"


def test_the_next_scheduler_hears_that_the_agent_was_told_to_exit() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(drain(None, own=False, terminate=True), ev.SessionClosed())
    assert of(cmd.SendDrain, world.connect()) == []  # who told it knows
    world.step(ev.SessionClosed())
    assert of(cmd.SendDrain, world.connect(term=TERM + 1))
