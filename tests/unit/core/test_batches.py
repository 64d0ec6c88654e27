"""Static batches: how large, of what, and when they are sent."""

from __future__ import annotations

import itertools
import random

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.timers import BUCKET
from scheduler_service.core.types import MILLISECOND, BatchRules, Traits
from scheduler_service.policies import build
from tests.builders import Agent, World, model, seconds, static


def world_of(agent_slots: int = 4, wait_ms: float = 10, **engine: object) -> tuple[World, Agent]:
    """One static engine; batches wait up to `wait_ms` for more."""
    options = {"batch": {"longest_wait": round(wait_ms * MILLISECOND)}}
    world = World(policies=build(options=options))
    return world, world.agent("a", static(slots=agent_slots, **engine))


def traits(**fields: object) -> Traits:
    """What a batch may need equal."""
    return Traits(**fields)  # type: ignore[arg-type]


def test_requests_that_came_while_the_engine_was_busy_form_one_batch() -> None:
    """Behaviour 15: sizes 1 then 4."""
    world, agent = world_of()
    first = world.submit()
    world.advance(0.02)
    for _ in range(4):
        world.submit()
    world.advance(1)
    agent.finish(first)
    assert agent.sizes() == [1, 4]
    assert agent.batches[1].atomic


def test_full_batch_goes_at_once() -> None:
    world, agent = world_of(wait_ms=500)
    world.submit(4)
    assert agent.sizes() == [4]
    assert agent.batches[0].close_reason == "size"


def test_batch_waits_for_more_at_most_the_longest_wait() -> None:
    world, agent = world_of(wait_ms=50)
    request = world.submit()
    world.advance(0.049)
    assert agent.batches == []
    world.advance(0.011)
    assert agent.running() == [request]
    assert agent.batches[0].close_reason == "timeout"
    assert agent.batches[0].oldest_wait <= 50 * MILLISECOND + BUCKET


def test_deadline_closes_a_batch_early() -> None:
    """Sent so that it still ends before the deadline, by what is known of its time."""
    world, agent = world_of(wait_ms=5_000)
    for _ in range(3):
        request = world.submit(4)
        world.advance(0.3)
        agent.finish(*request)
    urgent = world.submit(timeout=0.4)
    assert world.outcome(urgent) is None
    started = _start_of(world, agent)
    assert agent.batches[-1].close_reason == "deadline"
    assert started + seconds(0.33) <= urgent.deadline + BUCKET


def _start_of(world: World, agent: Agent) -> int:
    """When the next batch is sent."""
    before = len(agent.batches)
    while len(agent.batches) == before:
        world.advance(0.005)
    return agent.batches[-1].created_at


def test_batch_wait_is_bounded_by_a_quarter_of_its_own_time() -> None:
    world, agent = world_of(wait_ms=500)
    first = world.submit(4)
    world.advance(0.04)
    agent.finish(*first)
    world.submit()
    world.advance(0.016)
    assert agent.sizes() == [4, 1]


def test_cancelled_members_are_not_sent() -> None:
    """Behaviour 10: four wait, three are cancelled; the engine sees one item."""
    world, agent = world_of(agent_slots=8, wait_ms=500)
    requests = world.submit(4)
    world.advance(0.1)
    world.cancel(*requests[:3])
    world.advance(1)
    assert agent.sizes() == [1]
    assert agent.running() == [requests[3]]


def test_batch_of_cancelled_members_only_is_not_sent() -> None:
    """Behaviour 10: four of four cancelled; the engine sees nothing."""
    world, agent = world_of(agent_slots=8, wait_ms=500)
    world.cancel(*world.submit(4))
    world.advance(1)
    assert agent.batches == []
    world.assert_idle()


def test_expired_members_are_not_sent() -> None:
    """Three have expired, and the wheel that would have said so is up to 5 ms late."""
    world, agent = world_of(agent_slots=8, wait_ms=500)
    late = world.submit(3, timeout=0.101)
    live = world.submit()
    world.now += seconds(0.103)
    others = world.submit(4)
    assert agent.running() == [live, *others]
    assert [r.outcome for r in late] == [Outcome.EXPIRED] * 3


def test_largest_batch_is_counted_in_inputs_and_not_in_requests() -> None:
    """Behaviour 13: a burst of singles and of requests with several inputs."""
    world, agent = world_of(agent_slots=8)
    draw = random.Random(1)
    requests = [world.request(inputs=draw.choice([1, 1, 1, 2, 3, 5])) for _ in range(100)]
    world.step(ev.RequestsSubmitted(requests))
    while agent.running():
        agent.finish(*agent.running())
        world.advance(0.1)
    inputs = [sum(a.inputs for a in b.attempts) for b in agent.batches]
    assert max(inputs) == 8
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)


def test_inputs_of_those_who_wait_fill_a_batch() -> None:
    """Four requests of two inputs each are eight inputs: nothing to wait for."""
    world, agent = world_of(agent_slots=8, wait_ms=500)
    world.submit(3, inputs=2)
    assert agent.batches == []
    world.submit(inputs=2)
    assert agent.sizes() == [4]
    assert agent.batches[0].close_reason == "size"


def test_request_with_more_inputs_than_slots_is_charged_the_slots() -> None:
    world, agent = world_of(agent_slots=4)
    wide = world.submit(inputs=10)
    assert agent.running() == [wide]
    assert wide.attempts[0].inputs == 4


def test_engine_with_a_smaller_batch_limit_runs_several_at_once() -> None:
    world, agent = world_of(agent_slots=8, max_batch_size=4)
    world.submit(12)
    assert agent.sizes() == [4, 4]


def test_second_batch_waits_on_the_node_only_within_its_look_ahead() -> None:
    world, agent = world_of(agent_slots=4, look_ahead=4)
    world.submit(12)
    assert agent.sizes() == [4, 4]
    world, agent = world_of(agent_slots=4)
    world.submit(12)
    assert agent.sizes() == [4]


def test_batch_ends_when_all_of_its_items_have() -> None:
    world, agent = world_of(agent_slots=2)
    first, second = world.submit(2)
    waiting = world.submit(2)
    agent.finish(first)
    assert agent.sizes() == [2], "the engine is still busy with the batch"
    agent.finish(second)
    assert agent.running() == waiting
    assert len(world.noted("batch_finished")) == 1


UNLIKE = {
    "params": (traits(params=b"hot"), traits(params=b"cold")),
    "input_kind": (traits(input_kind=1), traits(input_kind=2)),
    "tensor_shapes": (traits(tensor_shapes="x:[2]"), traits(tensor_shapes="x:[3]")),
    "dimensions": (traits(dimensions=64), traits(dimensions=128)),
}


@pytest.mark.parametrize("name", sorted(UNLIKE))
def test_unlike_requests_never_share_a_batch(name: str) -> None:
    """Behaviour 16: interleaved settings; every batch is uniform in what must be equal."""
    world, agent = world_of(agent_slots=8, rules=BatchRules(equal=(name,)))
    one, other = UNLIKE[name]
    requests = [world.request(traits=t) for t in [one, other] * 10]
    world.step(ev.RequestsSubmitted(requests))
    _run_to_the_end(world, agent)
    for batch in agent.batches:
        assert len({getattr(a.request.traits, name) for a in batch.attempts}) == 1
    assert max(agent.sizes()) == 8, "alike ones do share"


@pytest.mark.parametrize(
    ("name", "values"), [("task_type", ["chat", "other"]), ("stream", [True, False])]
)
def test_unlike_fields_of_the_request_never_share_a_batch(name: str, values: list[object]) -> None:
    """Behaviour 16, for what is no trait but a field."""
    world, agent = world_of(agent_slots=8, rules=BatchRules(equal=(name,)))
    requests = [world.request(**{name: v}) for v in values * 10]
    world.step(ev.RequestsSubmitted(requests))
    _run_to_the_end(world, agent)
    for batch in agent.batches:
        assert len({getattr(a.request, name) for a in batch.attempts}) == 1
    assert max(agent.sizes()) == 8


def _run_to_the_end(world: World, agent: Agent) -> None:
    for _ in itertools.repeat(None, 200):
        agent.finish(*agent.running())
        world.advance(0.1)
        if not world.scheduler.state.requests:
            return
    raise AssertionError("some never ran")


def test_unknown_rule_makes_batches_of_one() -> None:
    world, agent = world_of(agent_slots=8, rules=BatchRules(equal=("colour",)))
    world.submit(8)
    assert agent.sizes() == [1]


def test_models_never_share_a_batch() -> None:
    """Behaviour 16: an adapter and its base are two models."""
    models = [model("base"), model("adapter", base_model="base")]
    world, agent = world_of(agent_slots=8, models=models)
    requests = [world.request(model=m) for m in ["base", "adapter"] * 8]
    world.step(ev.RequestsSubmitted(requests))
    _run_to_the_end(world, agent)
    for batch in agent.batches:
        assert {a.request.model for a in batch.attempts} == {batch.model}
    assert sorted(agent.sizes()) == [8, 8]


def test_lengths_in_a_batch_stay_within_the_ratio() -> None:
    rules = BatchRules(max_length_ratio=2.0)
    world, agent = world_of(agent_slots=8, rules=rules)
    lengths = [100, 150, 201, 90, 60, 400, 199, 120]
    requests = [world.request(traits=traits(length=n)) for n in lengths]
    world.step(ev.RequestsSubmitted(requests))
    _run_to_the_end(world, agent)
    for batch in agent.batches:
        sizes = [a.request.traits.length for a in batch.attempts if a.request.traits]
        assert max(sizes) <= 2 * min(sizes)


def test_padded_tokens_of_a_batch_stay_within_the_limit() -> None:
    world, agent = world_of(agent_slots=8, rules=BatchRules(max_tokens=1_000))
    lengths = [400, 100, 100, 100, 500, 100, 100, 100]
    requests = [world.request(traits=traits(length=n)) for n in lengths]
    world.step(ev.RequestsSubmitted(requests))
    _run_to_the_end(world, agent)
    for batch in agent.batches:
        sizes = [a.request.traits.length for a in batch.attempts if a.request.traits]
        assert len(sizes) == 1 or max(sizes) * len(sizes) <= 1_000


def test_one_members_error_is_its_own() -> None:
    """Behaviour 12: of a batch of four one fails by its own fault; three succeed."""
    world, agent = world_of()
    requests = world.submit(4)
    guilty = requests.pop(1)
    agent.finish(guilty, reason=Reason.INVALID_ARGUMENT, message="it is empty")
    agent.finish(*requests)
    assert [r.outcome for r in requests] == [Outcome.SUCCEEDED] * 3
    assert world.result(guilty).message == "it is empty"
    world.assert_idle()


def test_batch_members_go_in_queue_order() -> None:
    world, agent = world_of(agent_slots=4)
    first = world.submit(4)  # the floor's turn is the eighth
    requests = [world.submit(priority=p) for p in (1, 9, 5, 9, 2)]
    agent.finish(*first)
    assert agent.running() == [requests[1], requests[3], requests[2], requests[0]]


def test_limit_that_shrinks_does_not_call_an_open_batch_too_large() -> None:
    """Its agent lowered the limit while a batch of the old size runs."""
    world, agent = world_of(agent_slots=8)
    world.submit(8)
    agent.describe(static(slots=2))
    agent.report()
    agent.finish(*agent.running())
    world.submit(6)
    world.advance(1)
    assert agent.sizes() == [8, 2]
