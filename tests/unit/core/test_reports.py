"""Reports are the truth: the books are healed to them, both ways, and that is counted."""

from __future__ import annotations

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, RequestState
from tests.builders import World, engine


def test_true_report_heals_nothing() -> None:
    world = World()
    agent = world.agent("a", engine(slots=3))
    world.submit(5)
    agent.report()
    agent.finish(agent.running()[0])
    agent.report()
    assert world.scheduler.state.totals.healed == 0
    assert world.noted("ledger_healed") == []


def test_work_that_the_node_does_not_know_is_moved_and_its_room_freed() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit()
    b = world.agent("b")
    a.held.clear()
    a.report()
    assert b.running() == [request]
    assert world.scheduler.state.totals.healed == 1
    assert world.scheduler.state.nodes["a"].engines["e0"].healed == 1
    world.step(a.credits())
    following = world.submit()
    assert a.running() == [following]
    b.finish(request)
    assert request.outcome is Outcome.SUCCEEDED


def test_work_that_we_do_not_know_is_stopped() -> None:
    world = World()
    agent = world.agent()
    agent.report(held={"e0": [12345]})
    assert agent.cancelled == [12345]
    (healed,) = world.noted("ledger_healed")
    assert healed.data == {
        "what": "unknown", "engine": "e0", "items": 1, "dispatch_ids": [12345],
    }  # fmt: skip
    assert world.scheduler.state.nodes["n0"].engines["e0"].healed == 1


def test_what_is_not_ours_is_counted_once_and_stopped_until_it_is_gone() -> None:
    world = World()
    agent = world.agent()
    for _ in range(3):
        agent.report(held={"e0": [12345, 12345]})
    assert agent.cancelled == [12345] * 3
    assert world.scheduler.state.totals.healed == 1
    agent.report(held={"e0": [12345, 12346], "none": [12347]})
    assert world.scheduler.state.totals.healed == 3
    agent.report(held={})
    agent.report(held={"e0": [12345]})
    assert world.scheduler.state.totals.healed == 4, "it came back"
    assert [r.data["items"] for r in world.noted("ledger_healed")] == [1, 1, 1, 1]


def test_work_sent_after_the_sample_was_taken_is_not_called_lost() -> None:
    """The report crossed the dispatch: it tells of the first item only."""
    world = World()
    agent = world.agent("a", engine(slots=2))
    first, second = world.submit(2)
    agent.report(items_received=1, held={"e0": [agent.dispatch_id(first)]})
    assert second.state is RequestState.DISPATCHED
    assert len(second.attempts) == 1
    agent.report(items_received=2, held={"e0": [agent.dispatch_id(first)]})
    assert len(second.attempts) == 2 or second.state is RequestState.QUEUED


def test_revoked_work_that_ended_unseen_frees_its_room() -> None:
    """Behaviour 29: its result never came, but the report no longer lists it."""
    world = World()
    agent = world.agent()
    agent.obeys = False
    request = world.submit()
    world.cancel(request)
    waiting = world.submit()
    agent.held.clear()
    agent.report()
    world.step(agent.credits())
    assert agent.running() == [waiting]
    agent.finish(waiting)
    world.assert_idle()


def test_revoked_work_that_still_runs_keeps_its_room() -> None:
    world = World()
    agent = world.agent()
    agent.obeys = False
    request = world.submit()
    world.cancel(request)
    waiting = world.submit()
    agent.report()
    assert waiting.state is RequestState.QUEUED


def test_adopted_work_is_reconciled_in_the_new_session() -> None:
    world = World()
    agent = world.agent("a", engine(slots=2))
    kept, dropped = world.submit(2)
    agent.lose_stream()
    agent.join()
    del agent.held[agent.dispatch_id(dropped)]
    agent.report(items_received=0)
    assert world.scheduler.state.totals.healed == 1
    agent.finish(kept)
    world.step(agent.credits())
    world.advance(1)
    while agent.running():
        agent.finish(*agent.running())
    assert dropped.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_report_of_an_old_session_heals_nothing() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    old = agent.epoch
    agent.lose_stream()
    agent.join()
    world.step(ev.ReportReceived("n0", old, 1, {}))
    assert agent.running() == [request]
    assert request.state is RequestState.DISPATCHED
