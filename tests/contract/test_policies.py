"""Every registered policy keeps the contract of its question: pure, total, the same each time.

A new policy is tested by being registered; it is documented, or this fails.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core import interfaces
from scheduler_service.core.interfaces import (
    BatchView,
    Candidate,
    Close,
    GiveUp,
    LoadSpread,
    OutlierView,
    PoolLoad,
    Refusal,
    RetryAt,
    ScalePlan,
    ScaleView,
    WaitUntil,
)
from scheduler_service.core.outcomes import Reason, RequestClass
from scheduler_service.core.types import (
    NEVER,
    SECOND,
    Attempt,
    Batch,
    Engine,
    Node,
    NodeSpec,
    Request,
    ServiceEstimate,
)
from scheduler_service.policies import DEFAULTS, REGISTRY, UnknownPolicyError, build, make
from tests.builders import engine, model, static
from tests.tidy.source_tree import ROOT

NOW = 1_000 * SECOND
INSTANTS = st.integers(0, NOW)
DURATIONS = st.sampled_from([0, 1, 999, SECOND, 3 * SECOND, 100 * SECOND])
REGISTERED = [(question, name) for question, known in REGISTRY.items() for name in known]
PROTOCOLS = {
    "order": interfaces.Ordering,
    "preempt": interfaces.Preemption,
    "admission": interfaces.Admission,
    "batch": interfaces.BatchFormer,
    "filters": interfaces.Filter,
    "score": interfaces.Scorer,
    "pick": interfaces.Picker,
    "degrade": interfaces.Degrade,
    "failover": interfaces.Failover,
    "autoscale": interfaces.Autoscale,
    "health": interfaces.Health,
}


def registered(question: str) -> pytest.MarkDecorator:
    """All policies that answer the question."""
    return pytest.mark.parametrize("name", list(REGISTRY[question]))


def names(question: str) -> st.SearchStrategy[str]:
    """The same, for Hypothesis."""
    return st.sampled_from(list(REGISTRY[question]))


REQUESTS = st.builds(
    Request,
    rid=st.integers(1, 1 << 40),
    request_id=st.just("r"),
    model=st.just("m"),
    served_model=st.just("m"),
    priority=st.integers(1, 10),
    received_at=INSTANTS,
    place=st.integers(1, 1 << 40),
    request_class=st.sampled_from(RequestClass),
    deadline=st.one_of(st.just(NEVER), st.integers(NOW - SECOND, NOW + 100 * SECOND)),
    task_type=st.sampled_from(["other", "chat"]),
    prompt_tokens=st.sampled_from([0, 10, 10_000]),
    output_tokens=st.sampled_from([0, 1, 100_000]),
    size_bytes=st.integers(0, 1 << 20),
    continuing=st.booleans(),
    tried=st.sampled_from([[], ["n0/b"], ["n0/b", "n1/b"]]),
    charged=st.integers(1, 4),
    max_attempts=st.integers(1, 4),
    degrade=st.sampled_from([("s",), ("s", "t")]),
)
LOADS = st.builds(
    PoolLoad,
    waiting=st.integers(0, 20),
    waiting_bytes=st.integers(0, 1 << 21),
    ahead=st.integers(0, 20),
    free_inputs=st.integers(0, 8),
    parallel=st.integers(0, 8),
    live_nodes=st.integers(0, 3),
    expected_service=DURATIONS,
    mean_service=DURATIONS,
    max_requests=st.integers(1, 10),
    max_bytes=st.sampled_from([1, 1 << 20]),
)


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    """An engine of some node, with what has been learned of it."""
    node_id = draw(st.sampled_from(["n0", "n1", "n2"]))
    served = model(
        resumable=draw(st.booleans()),
        context_length=draw(st.sampled_from([0, 100])),
        task_types=draw(st.sampled_from([(), ("chat",)])),
        configured_service=draw(DURATIONS),
    )
    make_spec = draw(st.sampled_from([engine, static]))
    spec = make_spec(models=[served], slots=draw(st.integers(1, 8)))
    role = draw(st.sampled_from(["primary", "backup"]))
    node = Node(node_id, "b", 1, NodeSpec((spec,), role=role), 0, 0)
    made = Engine(node, spec, {"m": served}, in_flight_inputs=draw(st.integers(0, 8)))
    if draw(st.booleans()):
        made.service["m"] = ServiceEstimate(draw(DURATIONS), draw(st.floats(0, 1e6)), 1)
    return made


def twice(question: str, name: str, method: str, *given: Any) -> Any:
    """Ask two instances the same, and check that nothing that they saw has changed."""
    before = copy.deepcopy(given)
    one = getattr(make(question, name), method)(*given)
    other = getattr(make(question, name), method)(*given)
    assert one == other, "not the same each time"
    assert [repr(g) for g in given] == [repr(b) for b in before], "it wrote to what it saw"
    return one


# What holds for all.


@pytest.mark.parametrize(("question", "name"), REGISTERED)
def test_policy_keeps_no_state(question: str, name: str) -> None:
    """Frozen, so that all state is the core's; equal options make equal policies."""
    policy = make(question, name)
    assert dataclasses.is_dataclass(policy)
    assert type(policy).__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert policy == make(question, name)


@pytest.mark.parametrize(("question", "name"), REGISTERED)
def test_policy_answers_its_question(question: str, name: str) -> None:
    """It has the methods of its protocol, with the same parameters, and says what it does."""
    policy = type(make(question, name))
    for method, stated in inspect.getmembers(PROTOCOLS[question], inspect.isfunction):
        if not method.startswith("_"):
            mine = inspect.signature(getattr(policy, method)).parameters
            assert list(mine) == list(inspect.signature(stated).parameters)
    assert policy.__doc__


@pytest.mark.parametrize(("question", "name"), REGISTERED)
def test_policy_is_documented(question: str, name: str) -> None:
    """docs/policies.md has a section for each question, and in it one for each policy."""
    sections = re.split(r"^## ", (ROOT / "docs/policies.md").read_text("utf-8"), flags=re.M)
    (section,) = [s for s in sections if s.startswith(f"`{question}`")]
    entries = re.split(r"^### ", section, flags=re.M)
    (entry,) = [e for e in entries if e.startswith(f"`{name}`\n")]
    for part in ("What it does", "Intent", "Inputs", "Parameters"):
        assert f"**{part}.**" in entry, f"{question} {name}: {part}"
    for field in dataclasses.fields(type(make(question, name))):
        assert f"`{field.name}`" in entry, f"{question} {name}: its parameter {field.name}"


def test_documents_name_no_policy_that_is_not_there() -> None:
    text = (ROOT / "docs/policies.md").read_text("utf-8")
    assert set(re.findall(r"^## `(\w+)`", text, flags=re.M)) == set(REGISTRY)
    assert len(re.findall(r"^### `\w+`$", text, flags=re.M)) == len(REGISTERED)


def test_every_question_has_a_protocol_and_a_default() -> None:
    assert set(PROTOCOLS) == set(REGISTRY)
    assert set(DEFAULTS) == set(REGISTRY) - {"filters"}
    assert all(DEFAULTS[question] in REGISTRY[question] for question in DEFAULTS)


def test_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownPolicyError, match="order: no policy 'aegd'; known: aged, strict"):
        build({"order": "aegd"})


def test_options_reach_the_policy_that_they_are_for() -> None:
    policies = build({"order": "aged"}, {"order": {"levels": 5}})
    assert policies.ordering == make("order", "aged", levels=5)
    assert policies.ordering != make("order", "aged")


# Order.


@given(names("order"), st.lists(REQUESTS, min_size=2, max_size=6, unique_by=lambda r: r.place))
def test_order_is_total_and_ends_in_the_place(name: str, heads: list[Request]) -> None:
    """Keys of whole numbers, of one length, all unlike: no tie is left to chance."""
    keys = [twice("order", name, "key", head, NOW) for head in heads]
    assert len({len(key) for key in keys}) == 1
    assert len(set(keys)) == len(keys)
    for head, key in zip(heads, keys, strict=True):
        assert key[-1] == head.place
        assert all(type(part) is int for part in key)


@registered("order")
def test_discipline_is_the_same_each_time(name: str) -> None:
    """It is asked once per pool; a window is a cost, 0 or more."""
    assert make("order", name).discipline() == make("order", name).discipline()
    assert make("order", name).discipline().window >= 0


@given(names("preempt"), REQUESTS, engines(), INSTANTS)
def test_job_item_may_be_stopped_from_an_instant_after_its_start(
    name: str, request: Request, node: Engine, started_at: int
) -> None:
    batch = Batch("b1", node, "m", False, "credit", started_at)
    item = Attempt(1, 1, request, node, "m", batch, 1, started_at)
    assert started_at <= twice("preempt", name, "allowed_from", item) <= NEVER


# Admission.


@given(names("admission"), REQUESTS, LOADS)
def test_admission_lets_in_or_says_why_not(name: str, request: Request, load: PoolLoad) -> None:
    verdict = twice("admission", name, "decide", request, load, NOW)
    if verdict is not None:
        assert isinstance(verdict, Refusal)
        assert verdict.reason in (Reason.QUEUE_FULL, Reason.DEADLINE_UNREACHABLE, Reason.SHED)
        assert verdict.message
        assert (verdict.retry_after is not None) is (
            verdict.reason is not Reason.DEADLINE_UNREACHABLE
        )
    assert twice("admission", name, "estimated_wait", load) >= 0


@registered("admission")
def test_admission_lets_in_what_an_idle_pool_can_run(name: str) -> None:
    load = PoolLoad(0, 0, 0, 4, 4, 1, 0, 0, 10, 1 << 30)
    assert make("admission", name).decide(Request(1, "r", "m"), load, NOW) is None


@registered("admission")
def test_admission_keeps_the_hard_bounds(name: str) -> None:
    full = PoolLoad(10, 0, 0, 0, 4, 1, 0, 0, 10, 1 << 30)
    assert make("admission", name).decide(Request(1, "r", "m"), full, NOW).reason == (
        Reason.QUEUE_FULL
    )


# Batches.


@given(
    names("batch"),
    st.builds(
        BatchView,
        waiting=st.integers(1, 16),
        inputs_max=st.integers(1, 8),
        oldest_at=INSTANTS,
        earliest_deadline=st.one_of(st.just(NEVER), st.integers(NOW - SECOND, NOW + SECOND)),
        expected_service=DURATIONS,
        single=DURATIONS,
        whole=DURATIONS,
        size_limit=st.integers(0, 8),
        arrivals=st.sampled_from([0.0, 1.0, 1e3, 1e9]),
    ),
)
def test_batch_former_closes_or_names_an_instant_to_come(name: str, view: BatchView) -> None:
    """A wait that is over already would spin."""
    verdict = twice("batch", name, "decide", view, NOW)
    assert isinstance(verdict, Close | WaitUntil)
    if isinstance(verdict, WaitUntil):
        assert NOW < verdict.at < NEVER
        later = make("batch", name).decide(view, verdict.at)
        assert isinstance(later, Close), "it asks at most once"
    else:
        assert verdict.reason in ("size", "timeout", "deadline", "idle_node")
    if view.waiting >= view.inputs_max:
        assert isinstance(verdict, Close)


@given(names("batch"), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), DURATIONS)
def test_batch_size_stays_between_one_and_the_engines(
    name: str, limit: int, inputs_max: int, size: int, took: int
) -> None:
    resized = twice("batch", name, "resize", limit, inputs_max, size, took)
    assert 0 <= resized <= inputs_max


# Placement.


@given(names("filters"), REQUESTS, engines())
def test_filter_gives_a_stable_word_or_none(name: str, request: Request, node: Engine) -> None:
    assert twice("filters", name, "why_not", request, node) in (
        None, "tried", "task_type", "context", "not_resumable",
    )  # fmt: skip


@given(names("filters"), REQUESTS, REQUESTS, engines())
def test_filter_answers_alike_where_its_concerns_are(
    name: str, one: Request, other: Request, node: Engine
) -> None:
    """The core asks once for all that are equal in them."""
    policy = make("filters", name)
    if policy.concerns(one) == policy.concerns(other):
        assert policy.why_not(one, node) == policy.why_not(other, node)
    hash(policy.concerns(one))


@given(names("score"), REQUESTS, REQUESTS, engines())
def test_score_is_alike_where_its_concerns_are(
    name: str, one: Request, other: Request, node: Engine
) -> None:
    policy = make("score", name)
    if policy.concerns(one) == policy.concerns(other):
        assert policy.estimate(one, node, NOW) == policy.estimate(other, node, NOW)
    hash(policy.concerns(one))


@given(names("score"), REQUESTS, engines())
def test_score_is_a_duration(name: str, request: Request, node: Engine) -> None:
    estimate = twice("score", name, "estimate", request, node, NOW)
    assert type(estimate) is int
    assert 0 <= estimate < NEVER


@given(
    names("pick"),
    REQUESTS,
    st.lists(st.tuples(DURATIONS, engines()), min_size=1, max_size=5),
)
def test_picker_takes_one_of_those_it_is_shown(
    name: str, request: Request, scored: list[tuple[int, Engine]]
) -> None:
    spread = LoadSpread().fresh(NOW, [e for _, e in scored])
    assert any(twice("pick", name, "pick", scored, request, spread) is e for _, e in scored)


@registered("pick")
def test_picker_does_not_depend_on_the_order_it_is_shown(name: str) -> None:
    request = Request(1, "r", "m")
    shown = list(_equal_engines())
    picked = {
        make("pick", name).pick(order, request, LoadSpread()).node.node_id
        for order in itertools.permutations(shown)
    }
    assert len(picked) == 1


def _equal_engines() -> Iterator[tuple[int, Engine]]:
    for node_id in ("n2", "n0", "n1"):
        spec = engine()
        node = Node(node_id, "b", 1, NodeSpec((spec,)), 0, 0)
        yield SECOND, Engine(node, spec, {m.model: m for m in spec.models})


# Degrade, failover, scaling.


@given(
    names("degrade"),
    REQUESTS,
    st.lists(
        st.builds(
            Candidate,
            model=st.sampled_from(["s", "t"]),
            live_nodes=st.integers(0, 2),
            free_inputs=st.integers(0, 2),
            waiting=st.integers(0, 2),
        ),
        max_size=3,
        unique_by=lambda c: c.model,
    ),
)
def test_substitute_is_a_candidate_with_a_live_node(
    name: str, request: Request, candidates: list[Candidate]
) -> None:
    chosen = twice("degrade", name, "choose", request, candidates)
    assert chosen is None or chosen in [c.model for c in candidates if c.live_nodes]


@given(names("failover"), REQUESTS, engines(), st.sampled_from(Reason), st.integers(1, 4))
def test_failover_tries_again_from_now_on_or_gives_up(
    name: str, request: Request, node: Engine, reason: Reason, number: int
) -> None:
    batch = Batch("b1", node, "m", False, "credit", NOW)
    attempt = Attempt(1, number, request, node, "m", batch, 1, NOW)
    verdict = twice("failover", name, "decide", attempt, reason, NOW)
    if request.charged >= request.max_attempts:
        assert isinstance(verdict, GiveUp)
    if isinstance(verdict, RetryAt):
        assert NOW <= verdict.at <= NOW + 60 * SECOND
    else:
        assert verdict.reason in (
            Reason.NODE_LOST, Reason.ATTEMPTS_EXHAUSTED, Reason.RETRY_BUDGET_EXHAUSTED,
            Reason.POISONED,
        )  # fmt: skip
        assert verdict.message


@given(
    names("autoscale"),
    st.builds(
        ScaleView,
        pool=st.just("m"),
        waiting=st.integers(0, 20),
        oldest_wait=DURATIONS,
        ready=st.integers(0, 5),
        starting=st.integers(0, 3),
        running=st.integers(0, 9),
        slots=st.integers(0, 9),
        min_nodes=st.integers(0, 2),
        max_nodes=st.integers(2, 4),
        last_out_at=st.one_of(st.just(-NEVER), INSTANTS),
        last_in_at=st.one_of(st.just(-NEVER), INSTANTS),
        idle_since=st.one_of(st.just(NEVER), INSTANTS),
    ),
)
def test_scale_plan_stays_within_its_bounds(name: str, view: ScaleView) -> None:
    """It never asks for more than the maximum, nor gives back below the minimum."""
    plan = twice("autoscale", name, "plan", view, NOW)
    if plan is None:
        return
    assert isinstance(plan, ScalePlan)
    current = view.ready + view.starting
    assert plan.reason
    assert plan.desired != current
    if plan.desired > current:
        assert plan.desired <= max(view.max_nodes, view.min_nodes)
    else:
        assert plan.desired >= view.min_nodes


COUNTS = st.tuples(st.integers(0, 300), st.integers(0, 300))


@given(names("health"), st.integers(0, 9), COUNTS, st.lists(COUNTS, max_size=9))
def test_outlier_is_told_with_words(
    name: str, errors: int, own: tuple[int, int], others: list[tuple[int, int]]
) -> None:
    view = OutlierView(errors, *own, [own, *others])
    assert isinstance(twice("health", name, "why_eject", view), str)
    alike = OutlierView(0, *own, [own] * 9)
    assert make("health", name).why_eject(alike) == "", "a fault that all share is nobody's"
