"""Where does a request go: credit, slots and look-ahead, roles, estimates, exclusions."""

from __future__ import annotations

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import NodeHealth, Outcome, Reason, RequestState
from tests.builders import World, engine, model, seconds, static


def test_agent_holds_at_most_slots_and_look_ahead() -> None:
    """Behaviour 2: no backlog on the node, however many wait."""
    world = World()
    agent = world.agent("a", engine(slots=3, look_ahead=2))
    world.submit(50)
    assert len(agent.running()) == 5
    agent.finish(*agent.running()[:2])
    assert len(agent.running()) == 5
    assert agent.ledgers["e0"].peak == 5


def test_engine_gets_no_more_than_its_credit_even_with_free_slots() -> None:
    """The agent may grant less than its slots: its engine has other callers."""
    world = World()
    agent = world.agent("a", engine(slots=4), withheld=4)
    world.submit(4)
    assert agent.running() == [], "no credit yet"
    agent.withheld = 2
    world.step(agent.credits())
    assert len(agent.running()) == 2


def test_engine_gets_no_more_than_slots_and_look_ahead_whatever_its_credit() -> None:
    """A generous agent does not make a backlog on the node: late binding is the scheduler's."""
    world = World()
    agent = world.agent("a", engine(slots=2, look_ahead=1), withheld=-20)
    world.submit(10)
    assert len(agent.running()) == 3


def test_slot_that_credit_frees_is_used_before_its_result_comes() -> None:
    """Behaviour 2: what has ended on the agent is not held by it, wherever its result is."""
    world = World()
    agent = world.agent("a", engine(slots=3, look_ahead=1))
    requests = world.submit(6)
    ids = agent.free(*requests[:2])
    assert agent.running() == requests[2:]
    assert agent.ledgers["e0"].peak == 4
    assert [r.state for r in requests[:2]] == [RequestState.DISPATCHED] * 2, "free is not finished"
    agent.finish_ids(ids)
    agent.finish(*agent.running())
    assert [r.outcome for r in requests] == [Outcome.SUCCEEDED] * 6


def test_next_static_batch_goes_out_on_credit_alone() -> None:
    world = World()
    agent = world.agent("a", static(slots=4))
    requests = world.submit(8)
    ids = agent.free(*requests[:4])
    assert agent.sizes() == [4, 4]
    agent.finish_ids(ids)
    assert [r.outcome for r in requests[:4]] == [Outcome.SUCCEEDED] * 4
    assert agent.sizes() == [4, 4], "the room of the first batch is given out once"


def test_static_engine_with_part_of_a_batch_gets_no_other() -> None:
    """A cancelled member leaves room, but the batch still runs."""
    world = World()
    agent = world.agent("a", static(slots=4))
    requests = world.submit(8)
    agent.free(requests[0])
    assert agent.sizes() == [4]
    agent.free(*requests[1:4])
    assert agent.sizes() == [4, 4]


def test_results_that_never_come_cost_nobody_an_answer() -> None:
    """The node dies between its credit and its results: what it told and what it got goes on."""
    world = World()
    agent = world.agent("a", static(slots=2))
    requests = world.submit(4)
    agent.free(*requests[:2])
    agent.die()
    other = world.agent("b", static(slots=4))
    world.advance(10)
    other.finish(*other.running())
    world.advance(10)
    other.finish(*other.running())
    assert [r.outcome for r in requests] == [Outcome.SUCCEEDED] * 4


def test_agent_that_frees_and_never_answers_holds_up_no_more_than_twice_its_room() -> None:
    world = World()
    agent = world.agent("a", engine(slots=2))
    world.submit(20)
    for _ in range(5):
        agent.free(*agent.running())
    assert agent.received == 4


def test_slots_that_shrank_are_not_taken_for_ended_work() -> None:
    """A total never falls: after slots shrink it allows more than there is room for."""
    world = World()
    agent = world.agent("a", engine(slots=4))
    requests = world.submit(2)
    agent.describe(engine(slots=2))
    world.submit(4)
    assert agent.running() == requests


def test_repeated_or_late_credit_takes_nothing_back_and_gives_nothing_twice() -> None:
    world = World()
    agent = world.agent("a", engine(slots=2))
    world.submit(10)
    for total in (2, 1, 0, 2):
        world.step(ev.CreditsGranted("a", agent.epoch, [("e0", total, None)]))
    assert len(agent.running()) == 2
    ledger = world.scheduler.state.nodes["a"].engines["e0"]
    assert ledger.credit_inputs == 2


def test_credit_for_unknown_engines_and_old_sessions_is_ignored() -> None:
    world = World()
    agent = world.agent()
    world.step(
        ev.CreditsGranted("n0", agent.epoch, [("other", 100, None)]),
        ev.CreditsGranted("n0", agent.epoch + 7, [("e0", 100, None)]),
        ev.CreditsGranted("stranger", 1, [("e0", 100, None)]),
    )
    world.submit(3)
    assert len(agent.running()) == 1


def test_wide_request_waits_for_room_for_all_its_inputs() -> None:
    world = World()
    agent = world.agent("a", engine(slots=4))
    singles = world.submit(3)
    wide = world.submit(inputs=3)
    assert wide not in agent.running()
    narrow = world.submit()
    assert narrow in agent.running(), "one slot is free, and the wide one cannot use it"
    agent.finish(*singles[:2])
    assert wide not in agent.running()
    agent.finish(singles[2])
    assert wide in agent.running()


def test_wide_request_is_not_starved_by_narrow_ones() -> None:
    """At the floor's turn nothing goes past it: the room is kept until it fits."""
    world = World()
    agent = world.agent("a", engine(slots=4))
    world.submit(4)
    wide = world.submit(inputs=4)
    started = 0
    while not wide.attempts:
        world.submit(2)
        agent.finish(agent.running()[0])
        started += 1
        assert started <= 20, "it is starved"
    assert wide in agent.running()


def test_backup_gets_work_only_while_no_primary_is_eligible() -> None:
    world = World()
    backup = world.agent("backup", engine(slots=4), role="backup")
    first = world.submit()
    assert backup.running() == [first], "nobody else is there"
    primary = world.agent("primary")
    second, third = world.submit(2)
    assert primary.running() == [second]
    assert third.state is RequestState.QUEUED, "a primary that is only full is eligible"
    primary.die()
    world.advance(0.01)
    assert third in backup.running()
    assert second in backup.running(), "and so is what the dead one had"


def test_backup_helps_what_would_miss_its_deadline() -> None:
    world = World()
    primary = world.agent("primary")
    done = world.submit()
    world.advance(1)
    primary.finish(done)
    backup = world.agent("backup", role="backup")
    busy = world.submit()
    relaxed = world.submit(timeout=30)
    urgent = world.submit(timeout=1.5)
    assert primary.running() == [busy]
    assert relaxed.state is RequestState.QUEUED
    assert backup.running() == [urgent]


def test_failed_over_request_may_use_a_backup_when_no_primary_has_room() -> None:
    world = World()
    a = world.agent("a")
    b = world.agent("b")
    backup = world.agent("backup", role="backup")
    world.submit()
    moved = world.submit()
    fresh = world.submit()
    assert moved in b.running()
    b.die()
    assert backup.running() == [moved]
    assert fresh.state is RequestState.QUEUED
    assert len(a.running()) == 1


def test_cordoned_primary_lets_a_backup_work() -> None:
    world = World()
    world.agent("primary")
    backup = world.agent("backup", role="backup")
    world.step(ev.NodeCordoned("primary", True))
    request = world.submit()
    assert backup.running() == [request]


def test_work_goes_where_it_is_expected_to_end_soonest() -> None:
    world = World()
    slow = world.agent("a", engine(slots=4, models=[model(configured_service=seconds(4))]))
    fast = world.agent("b", engine(slots=4, models=[model(configured_service=seconds(1))]))
    requests = world.submit(4)
    assert fast.running() == requests
    assert slow.running() == []
    world.submit(2)
    assert len(slow.running()) == 2


def test_equal_engines_share_the_load() -> None:
    world = World()
    agents = [world.agent(f"n{i}", engine(slots=4)) for i in range(3)]
    world.submit(6)
    assert [len(a.running()) for a in agents] == [2, 2, 2]


def test_node_that_turned_slow_is_avoided_once_it_is_known() -> None:
    world = World()
    slow = world.agent("a", engine(slots=2))
    fast = world.agent("b", engine(slots=2))
    for _ in range(3):
        world.submit(2)
        world.advance(0.1)
        fast.finish(*fast.running())
        world.advance(1)
        slow.finish(*slow.running())
    request = world.submit()
    assert fast.running() == [request]


def test_task_types_of_the_model_win_over_the_nodes() -> None:
    world = World()
    chat = world.agent("chat", task_types=("chat",))
    code = world.agent("code", engine(models=[model(task_types=("code",))]), task_types=("chat",))
    request = world.submit(task_type="code")
    assert code.running() == [request]
    assert chat.running() == []


def test_refusing_engine_is_left_alone_for_a_moment_only() -> None:
    """Behaviour 60: full is not dead. The request goes back uncharged and is tried again."""
    world = World()
    agent = world.agent()
    request = world.submit()
    for refusals in range(5):
        agent.finish(request, reason=Reason.ENGINE_BUSY, refused=True)
        assert request.state is RequestState.QUEUED
        assert len(agent.batches) == refusals + 1, "it does not spin"
        world.advance(0.106)
        assert agent.running() == [request]
    assert request.charged == 1
    assert request.tried == ()
    agent.finish(request)
    assert world.scheduler.state.nodes["n0"].health is NodeHealth.HEALTHY
    world.assert_idle()


def test_refused_request_goes_to_another_node_at_once() -> None:
    world = World()
    a, b = world.agent("a"), world.agent("b")
    request = world.submit()
    assert a.running() == [request]
    a.finish(request, reason=Reason.ENGINE_UNAVAILABLE, refused=True)
    assert b.running() == [request]


def test_what_a_node_failed_is_not_sent_there_again() -> None:
    world = World()
    a, b = world.agent("a"), world.agent("b", engine(slots=1))
    busy = world.submit(2)
    request = world.submit()
    a.finish(busy[0])
    assert a.running() == [request]
    a.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(1)
    assert a.running() == [], "b is full, but it has not failed it"
    b.finish(busy[1])
    assert b.running() == [request]


def test_restarted_node_is_not_blamed_for_its_former_self() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit()
    a.die()
    a.restart()
    assert a.running() == [request]


def test_only_node_is_tried_again_when_nothing_else_is_alive() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    agent.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(0.2)
    assert agent.running() == [request]


@pytest.mark.parametrize("state", ["cordoned", "draining", "unfit", "down"])
def test_node_that_will_not_take_it_is_no_reason_to_wait(state: str) -> None:
    """The other node is alive and has not failed it, but it will not come to its help."""
    world = World()
    a = world.agent("a")
    request = world.submit(task_type="chat")
    b = world.agent("b", task_types=("code",) if state == "unfit" else ())
    if state == "cordoned":
        world.step(ev.NodeCordoned("b", True))
    elif state == "draining":
        world.step(ev.DrainRequested("b", seconds(60), False))
    elif state == "down":
        b.report(unhealthy={"e0": "its process died"})
    a.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(0.2)
    assert a.running() == [request]


def test_untried_node_that_is_suspect_is_waited_for() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit()
    b = world.agent("b")
    b.frozen = True
    world.advance(3.5)
    a.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(0.3)
    assert a.running() == []
    b.frozen = False
    world.step(b.beat())
    assert b.running() == [request]


def test_unhealthy_engine_and_inactive_model_get_no_work() -> None:
    world = World()
    agent = world.agent("a", engine("e0", models=["x"]), engine("e1", models=["y"]))
    agent.report(unhealthy={"e0": "stalled"}, inactive_models={"e1": ["y"]})
    world.submit(model="x")
    world.submit(model="y")
    assert agent.batches == []
    agent.report()
    assert len(agent.running()) == 2


def test_description_does_not_make_an_unhealthy_engine_healthy() -> None:
    """It says nothing of health; the report before it still holds."""
    world = World()
    agent = world.agent()
    agent.report(unhealthy={"e0": "stalled"})
    agent.describe(engine(slots=2))
    world.submit()
    assert agent.batches == []


def test_what_the_edge_hands_over_is_not_written_to() -> None:
    world = World()
    agent = world.agent()
    agent.report(unhealthy={"e0": "stalled"}, inactive_models={"e0": ["m"]})
    assert agent.spec.engines[0].healthy
    assert agent.spec.engines[0].models[0].active


def test_adapter_shares_its_bases_slots() -> None:
    world = World()
    models = [model("base"), model("adapter", base_model="base")]
    agent = world.agent("a", engine(slots=2, models=models))
    world.submit(2, model="base")
    request = world.submit(model="adapter")
    assert request not in agent.running()
    agent.finish(agent.running()[0])
    assert request in agent.running()


def test_more_slots_are_used_and_fewer_respected_once_described() -> None:
    world = World()
    agent = world.agent("a", engine(slots=1))
    world.submit(6)
    agent.describe(engine(slots=3))
    assert len(agent.running()) == 3
    agent.describe(engine(slots=2))
    agent.finish(agent.running()[0])
    assert len(agent.running()) == 2, "the third leaves, none takes its place"
    agent.finish(agent.running()[0])
    assert len(agent.running()) == 2


def test_static_and_continuous_engines_serve_one_model_side_by_side() -> None:
    world = World()
    agent = world.agent("a", static("s", slots=2), engine("c", slots=1))
    world.submit(3)
    world.advance(0.1)
    assert len(agent.running()) == 3
