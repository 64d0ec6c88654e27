"""The agent's core: credits, starts, ends, deadlines, cancels, sessions, drains."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from node_agent.core import ItemState, Limits, OutcomeKind, invariants
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.core.items import Fault
from tests.unit.agent.agent_world import (
    SECOND,
    E,
    World,
    batch,
    credit,
    dispatch_id,
    item,
    of,
    results,
    started,
)

# Credits and room.


def test_first_credit_is_slots_plus_look_ahead() -> None:
    world = World(slots=3, look_ahead=2)
    assert credit(world.ready()) == 5


def test_an_engine_that_is_not_up_gives_no_credit_until_it_is() -> None:
    world = World(slots=3)
    assert credit(world.connect()) == 0
    assert credit(world.serve()) == 3


def test_receiving_gives_no_credit_and_finishing_gives_it_back_at_once() -> None:
    world = World(slots=2)
    world.ready()
    assert credit(world.step(batch(item(1), item(2)))) is None
    assert credit(world.finish(1)) == 3


def test_an_item_of_several_inputs_takes_and_returns_that_much() -> None:
    world = World(slots=4)
    world.ready()
    world.step(batch(item(1, inputs=3)))
    assert credit(world.finish(1)) == 7


def test_token_credit_follows_the_capacity_of_the_cache() -> None:
    world = World(slots=4, token_capacity=1000)
    first = of(cmd.SendCredit, world.ready())[-1]
    world.step(batch(item(1, tokens=300)))
    last = of(cmd.SendCredit, world.finish(1))[-1]
    assert (first.total_tokens, last.total_tokens) == (1000, 1300)


def test_an_over_send_is_refused_and_nothing_else_breaks() -> None:
    """Behaviour 2: an agent never holds more than slots + look-ahead."""
    world = World(slots=2, look_ahead=1)
    world.ready()
    out = world.step(batch(*[item(n) for n in range(1, 6)]))
    assert started(out) == [1, 2]
    assert {n: r.reason for n, r in results(out).items()} == {4: "ENGINE_BUSY", 5: "ENGINE_BUSY"}
    assert all(r.kind is OutcomeKind.REFUSED for r in results(out).values())
    # What was refused took no room: the total grows by it, so the scheduler may send nothing yet.
    assert credit(out) == 5
    assert started(world.finish(1)) == [3]


def test_shrunk_slots_never_lower_the_total_and_refuse_what_is_too_much() -> None:
    world = World(slots=4)
    world.ready()
    world.step(ev.SlotsLimited("e0", 1))
    out = world.step(batch(item(1), item(2)))
    assert started(out) == [1]
    assert results(out)[2].reason == "ENGINE_BUSY"
    assert credit(world.commands) == 4
    world.step(batch(item(3), item(4)))
    # 4 charged, one held, room for none: the total stays where the charges are.
    assert credit(world.commands) == 4
    assert credit(world.finish(1)) == 5


def test_look_ahead_waits_and_starts_when_a_slot_is_free() -> None:
    world = World(slots=1, look_ahead=1)
    world.ready()
    assert started(world.step(batch(item(1), item(2)))) == [1]
    ledger = world.agent.ledger()
    assert ledger.running == {"e0": [dispatch_id(1)]}
    assert ledger.waiting == {"e0": [dispatch_id(2)]}
    assert ledger.items_received == 2
    assert started(world.finish(1)) == [2]


def test_a_static_engine_gets_one_atomic_batch_at_a_time() -> None:
    world = World(slots=4, look_ahead=4, static=True)
    world.ready()
    out = world.step(batch(item(1), item(2), atomic=True), batch(item(3), item(4), atomic=True))
    assert [len(c.items) for c in of(cmd.RunItems, out)] == [2]
    assert started(world.finish(1)) == []
    run = of(cmd.RunItems, world.finish(2))
    assert len(run) == 1
    assert run[0].atomic
    assert len(run[0].items) == 2


def test_an_atomic_batch_above_the_engines_size_is_split() -> None:
    """Behaviour 13: a batch never exceeds the engine's maximum, counted in inputs."""
    world = World(slots=4, look_ahead=4, static=True, max_batch_size=3)
    world.ready()
    out = world.step(batch(*[item(n, inputs=2) for n in (1, 2, 3)], atomic=True))
    assert started(out) == [1]


def test_credit_says_when_a_static_engine_waits_for_it() -> None:
    """As long as it has work the results may come first."""
    world = World(slots=2, look_ahead=2, static=True)
    first = of(cmd.SendCredit, world.ready())[-1]
    assert first.hungry
    world.step(batch(item(1), item(2), atomic=True), batch(item(3), item(4), atomic=True))
    assert not any(c.hungry for n in (1, 2) for c in of(cmd.SendCredit, world.finish(n)))
    assert [c.hungry for n in (3, 4) for c in of(cmd.SendCredit, world.finish(n))] == [False, True]


def test_slots_freed_ahead_of_results_are_credit_and_their_items_are_still_owed() -> None:
    """Behaviour 2: the next batch may come, and a report that leaves meanwhile lists both."""
    world = World(slots=2, static=True)
    world.ready()
    world.step(batch(item(1), item(2), atomic=True))
    ids = [dispatch_id(1), dispatch_id(2)]
    out = world.step(ev.EngineFreed(E, ids))
    assert (credit(out), results(out)) == (4, {})
    assert started(world.step(batch(item(3), item(4), atomic=True))) == [3, 4]
    assert world.agent.ledger().running[E] == [*ids, dispatch_id(3), dispatch_id(4)]
    assert credit(world.finish(1)) is None, "its room was given out already"
    assert world.agent.counters.late_results == 0
    world.finish(1)
    assert world.agent.counters.late_results == 1


def test_continuous_engine_never_waits_for_a_batch() -> None:
    world = World(slots=1)
    world.ready()
    world.step(batch(item(1)))
    assert [c.hungry for c in of(cmd.SendCredit, world.finish(1))] == [False]


def test_a_static_engine_of_two_batches_runs_two_at_once() -> None:
    world = World(slots=4, look_ahead=4, static=True, max_batch_size=2)
    world.ready()
    out = world.step(*[batch(item(n), atomic=True) for n in (1, 2, 3)])
    assert started(out) == [1, 2]
    assert started(world.finish(2)) == [3]


def test_too_many_unacknowledged_results_stop_the_credit() -> None:
    world = World(slots=1, limits=Limits(unacked_results=2))
    world.ready()
    for n in (1, 2, 3):
        world.step(batch(item(n)))
        last = credit(world.finish(n))
    assert last is None
    assert credit(world.step(ev.ResultsAcked(3))) == 4


# Ends.


def test_every_item_gets_one_result_that_is_kept_until_acknowledged() -> None:
    world = World(slots=2)
    world.ready()
    world.step(batch(item(1), item(2)))
    world.finish(2)
    world.finish(1)
    assert list(results(world.commands)) == [2, 1]
    world.step(ev.ResultsAcked(1))
    assert list(world.agent.items) == [dispatch_id(1)]
    world.step(ev.ResultsAcked(2))
    assert not world.agent.items


def test_an_unreadable_item_fails_alone_and_returns_its_room() -> None:
    world = World(slots=2)
    world.ready()
    out = world.step(batch(item(1, fault=Fault("no such text", "request.text")), item(2)))
    outcome = results(out)[1]
    assert (outcome.kind, outcome.reason) == (OutcomeKind.INVALID, "INVALID_ARGUMENT")
    assert outcome.field == "request.text"
    assert started(out) == [2]
    assert credit(out) == 3


def test_work_for_an_unknown_or_stopped_engine_is_refused() -> None:
    world = World()
    world.ready()
    out = world.step(batch(item(1), engine_id="other"))
    world.serve(False)
    out += world.step(batch(item(2)))
    assert {r.reason for r in results(out).values()} == {"ENGINE_UNAVAILABLE"}
    assert all(r.kind is OutcomeKind.REFUSED for r in results(out).values())


def test_a_repeated_or_nameless_item_is_counted_and_not_run() -> None:
    world = World(slots=4)
    world.ready()
    world.step(batch(item(1)))
    out = world.step(batch(item(1), item(0, term=0)))
    assert started(out) == []
    assert results(out) == {}
    assert (world.agent.counters.items_repeated, world.agent.counters.items_without_id) == (1, 1)
    assert world.agent.items_received == 3


def test_a_second_end_of_an_item_is_counted_and_changes_nothing() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.finish(1)
    assert world.finish(1) == []
    assert world.agent.counters.late_results == 1


# Deadlines and cancels.


def test_a_waiting_item_expires_by_timer_and_is_never_run() -> None:
    """Behaviour 18: expiry is independent of a slot becoming free."""
    world = World(slots=1, look_ahead=1)
    world.ready()
    world.step(batch(item(1), item(2, remaining_ns=SECOND)))
    assert results(world.advance(0.99)) == {}
    outcome = results(world.advance(0.02))[2]
    assert (outcome.kind, outcome.reason) == (OutcomeKind.EXPIRED, "DEADLINE_EXCEEDED")
    assert started(world.finish(1)) == []


def test_a_running_item_that_expires_is_stopped_in_the_engine() -> None:
    """Behaviour 21: the engine does not run on after the deadline."""
    world = World(slots=1)
    world.ready()
    world.step(batch(item(1, remaining_ns=SECOND)))
    stops = of(cmd.CancelItem, world.advance(1))
    assert [(c.dispatch_id, c.reason) for c in stops] == [(dispatch_id(1), "DEADLINE_EXCEEDED")]
    outcome = results(world.finish(1, complete=False))[1]
    assert (outcome.kind, outcome.result) == (OutcomeKind.EXPIRED, "done")


def test_an_engine_that_ignores_a_cancel_holds_its_slot_but_not_the_result() -> None:
    """Behaviour 28: the room comes back when the engine is through, on every path, once."""
    world = World(slots=1)
    world.ready()
    world.step(batch(item(1)))
    world.step(ev.CancelsReceived([dispatch_id(1)], "CANCELLED_BY_CLIENT"))
    out = world.advance(1)
    assert results(out)[1].reason == "CANCELLED_BY_CLIENT"
    assert credit(out) is None
    assert world.agent.ledger().running == {"e0": []}
    world.step(ev.ResultsAcked(1))
    assert credit(world.finish(1, complete=False)) == 2


def test_the_items_deadline_does_not_end_the_wait_for_the_engines_word() -> None:
    world = World(slots=1)
    world.ready()
    world.step(batch(item(1, remaining_ns=SECOND)))
    world.advance(0.9)
    world.step(ev.CancelsReceived([dispatch_id(1)], "PREEMPTED"))
    assert results(world.advance(0.5)) == {}
    assert results(world.advance(0.5))[1].reason == "PREEMPTED"


def test_a_cancel_of_waiting_running_unknown_and_finished_items() -> None:
    world = World(slots=1, look_ahead=1)
    world.ready()
    world.step(batch(item(1), item(2)))
    out = world.step(ev.CancelsReceived([dispatch_id(n) for n in (1, 2, 9)], "PREEMPTED"))
    assert results(out)[2].reason == "PREEMPTED"
    assert [c.dispatch_id for c in of(cmd.CancelItem, out)] == [dispatch_id(1)]
    world.finish(1, complete=False)
    assert world.step(ev.CancelsReceived([dispatch_id(1)], "PREEMPTED")) == []
    assert [r.kind for r in results(world.commands).values()] == [OutcomeKind.CANCELLED] * 2


def test_a_second_cancel_tells_the_engine_nothing_new() -> None:
    """Behaviour 35: cancel, deadline and drain at once stop the engine exactly once."""
    world = World()
    world.ready()
    world.step(batch(item(1, remaining_ns=SECOND)))
    world.now = SECOND
    world.step(
        ev.CancelsReceived([dispatch_id(1)], "CANCELLED_BY_CLIENT"),
        ev.CancelsReceived([dispatch_id(1)], "REVOKED"),
        ev.DrainRequested(grace_ns=0, own=True, terminate=True),
    )
    assert len(of(cmd.CancelItem, world.commands)) == 1


def test_an_answer_that_beats_its_cancel_stands() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.step(ev.CancelsReceived([dispatch_id(1)], "REVOKED"))
    assert results(world.finish(1, complete=True))[1].kind is OutcomeKind.ENGINE


# Sessions.


def test_a_new_session_hands_back_every_item_with_its_state_and_offsets() -> None:
    world = World(slots=2, look_ahead=1)
    world.ready()
    world.step(batch(item(1, stream=True, cookie=b"c1"), item(2), item(3)))
    world.step(ev.EngineRunning(dispatch_id(1), 1))
    world.output(1, "née ")
    world.step(ev.SessionClosed())
    world.finish(2)
    hello = of(cmd.SendHello, world.step(ev.SessionOpened()))[0]
    assert (hello.cluster_id, hello.highest_term) == ("c", 7)
    state = {h.held.item.dispatch_id: h.held.state for h in hello.items}
    assert state == {
        dispatch_id(1): ItemState.FIRST_OUTPUT,
        dispatch_id(2): ItemState.FINISHED,
        dispatch_id(3): ItemState.SUBMITTED,
    }
    assert hello.items[0].offsets == {(0, 0): len("née ".encode())}
    assert hello.items[0].held.item.cookie == b"c1"


def test_first_credit_of_a_new_session_leaves_out_the_room_of_adopted_items() -> None:
    world = World(slots=3)
    world.ready()
    world.step(batch(item(1), item(2)))
    world.step(ev.SessionClosed())
    assert credit(world.connect()) == 1
    assert world.agent.items_received == 0
    assert credit(world.finish(1)) == 2


def test_results_are_sent_again_after_the_welcome_in_the_order_they_ended() -> None:
    world = World(slots=3)
    world.ready()
    world.step(batch(item(1), item(2), item(3)))
    world.finish(3)
    world.finish(1)
    world.step(ev.ResultsAcked(1), ev.SessionClosed())
    world.finish(2)
    assert list(results(world.connect())) == [1, 2]
    world.step(ev.ResultsAcked(2))
    assert not world.agent.items


def test_abandoned_items_are_stopped_and_dropped_without_a_result() -> None:
    """Behaviour 47: a fenced attempt's engine work is cancelled; its answer goes nowhere."""
    world = World(slots=2, look_ahead=1)
    world.ready()
    world.step(batch(item(1), item(2), item(3)))
    world.finish(2)
    world.step(ev.SessionClosed())
    out = world.connect(abandoned=[dispatch_id(n) for n in (1, 2, 3)])
    assert [c.dispatch_id for c in of(cmd.CancelItem, out)] == [dispatch_id(1), dispatch_id(3)]
    assert results(out) == {}
    assert credit(out) == 1  # two are still in the engine
    assert results(world.finish(1, complete=False)) == {}
    assert credit(world.finish(3)) == 3


def test_a_lower_term_is_refused_and_keeps_everything() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)), ev.SessionClosed())
    out = world.connect(term=6)
    assert [c.reason for c in of(cmd.RefuseSession, out)] == ["STALE_TERM"]
    assert of(cmd.SendCredit, out) == []
    assert list(world.agent.items) == [dispatch_id(1)]
    assert of(cmd.SendCredit, world.connect(term=8))


def test_new_dispatches_of_an_older_term_are_refused_but_adopted_ones_go_on() -> None:
    world = World(slots=3)
    world.ready()
    world.step(batch(item(1)), ev.SessionClosed())
    world.connect(term=8)
    out = world.step(batch(item(2, term=7)))
    assert results(out)[2].reason == "STALE_TERM"
    assert results(world.finish(1))[1].kind is OutcomeKind.ENGINE


def test_another_cluster_gets_nothing_of_the_first_ones_work() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)), ev.SessionClosed())
    out = world.connect(cluster="d", term=1)
    assert [c.dispatch_id for c in of(cmd.CancelItem, out)] == [dispatch_id(1)]
    assert not world.agent.items
    world.step(ev.SessionClosed())
    assert of(cmd.RefuseSession, world.connect(cluster="c", term=6))


def test_output_goes_on_from_the_offsets_that_the_scheduler_names() -> None:
    world = World(slots=3)
    world.ready()
    world.step(batch(item(1, stream=True), item(2, stream=True)))
    world.output(1, "abc")
    world.output(2, "xyz")
    world.agent.outputs.take(10, 1000)
    world.output(1, "def")
    world.step(ev.SessionClosed())
    world.connect(resume_points={dispatch_id(1): {(0, 0): 2}})
    deltas = world.agent.outputs.take(10, 1000)
    assert {(d.dispatch_id, d.offset, d.text) for d in deltas} == {
        (dispatch_id(1), 2, "cdef"),
        (dispatch_id(2), 0, "xyz"),
    }


def test_a_continued_output_begins_where_the_earlier_attempt_ended() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1, stream=True, starts={(0, 0): 40})))
    world.output(1, "go on")
    assert [d.offset for d in world.agent.outputs.take(10, 100)] == [40]
    world.step(ev.SessionClosed())
    world.connect()
    assert [d.offset for d in world.agent.outputs.take(10, 100)] == [40]


def test_work_that_came_without_a_session_is_counted_and_dropped() -> None:
    world = World()
    world.serve()
    assert world.step(batch(item(1))) == []
    assert world.agent.counters.batches_without_session == 1


def test_an_acknowledgement_beyond_what_was_sent_is_counted() -> None:
    world = World()
    world.ready()
    world.step(ev.ResultsAcked(4))
    assert world.agent.counters.acks_beyond_sent == 1


def test_late_output_is_counted_and_dropped() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1, stream=True)))
    world.finish(1)
    world.output(1, "too late")
    assert world.agent.counters.late_outputs == 1
    assert not world.agent.outputs.any_unsent


# The machine itself.


def test_a_broken_ledger_is_noticed() -> None:
    world = World()
    world.ready()
    world.step(batch(item(1)))
    world.agent.engines["e0"].held_inputs += 1
    with pytest.raises(invariants.InvariantViolation, match="inputs held"):
        invariants.check(world.agent)


def test_every_event_has_a_handler() -> None:
    assert set(get_args(ev.Event)) == set(World().agent._handlers)


def test_the_core_imports_nothing_that_waits_reads_or_sends() -> None:
    code = (
        "import sys, node_agent.core, node_agent.core.invariants; "
        "print([m for m in ('asyncio', 'grpc', 'google', 'logging', 'socket') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Models that are to be unloaded.


def close(model: str, grace_s: float | None = 10) -> ev.ModelClosed:
    return ev.ModelClosed(E, model, None if grace_s is None else int(grace_s * SECOND))


def test_a_closed_model_takes_no_more_and_may_go_when_what_it_holds_is_through() -> None:
    world = World(slots=2, look_ahead=2)
    world.ready()
    world.step(batch(item(1, model="a"), item(2, model="a"), item(3, model="a")))
    out = world.step(close("a"), batch(item(4, model="a")))
    assert (results(out)[4].reason, results(out)[4].kind) == (
        "NODE_DRAINING",
        OutcomeKind.REFUSED,
    )
    world.finish(1)
    assert 4 not in results(world.step(batch(item(5, model="b"))))  # another model goes on
    world.finish(2)
    assert of(cmd.DropModel, world.commands) == []  # the one that waited runs now
    assert of(cmd.DropModel, world.finish(3)) == [cmd.DropModel(E, "a")]
    assert of(cmd.DropModel, world.step()) == []  # told once
    assert results(world.step(batch(item(6, model="a"))))[6].reason == "NODE_DRAINING"
    world.step(ev.ModelReopened(E, "a"))
    assert 7 not in results(world.step(batch(item(7, model="a"))))


def test_what_still_runs_when_the_grace_is_over_goes_back() -> None:
    world = World(slots=2)
    world.ready()
    world.step(batch(item(1, model="a"), item(2, model="b")))
    world.step(close("a", 10))
    out = world.advance(10)
    assert [c.dispatch_id for c in of(cmd.CancelItem, out)] == [dispatch_id(1)]
    assert of(cmd.DropModel, out) == []  # its engine is not through with it
    out = world.finish(1, complete=False)
    assert results(out)[1].kind is OutcomeKind.REFUSED
    assert of(cmd.DropModel, out) == [cmd.DropModel(E, "a")]
    assert of(cmd.DropModel, world.step(close("idle", None))) == [cmd.DropModel(E, "idle")]
