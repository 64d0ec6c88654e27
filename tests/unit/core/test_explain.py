"""What an explanation says of placements, and of what waits."""

from __future__ import annotations

from dataclasses import replace

from scheduler_service.core import events as ev
from scheduler_service.core import explain
from scheduler_service.core.explain import Candidate
from scheduler_service.core.outcomes import RequestClass
from tests.builders import World, engine, model, settings, static


def told(w: World, request: object, number: int = -1) -> dict[str, Candidate]:
    """The candidates of one placement, by node."""
    placed = explain.placements_of(w.scheduler.state, request)  # type: ignore[arg-type]
    return {c.node_id: c for c in placed[number].candidates}


def test_losers_are_told_with_their_scores_and_the_others_with_their_reasons() -> None:
    w = World()
    w.agent("slow", engine(slots=2, models=[model(configured_service=10**9)]))
    w.agent("quick", engine(slots=2, models=[model(configured_service=10**6)]))
    w.agent("small", engine(models=[model(context_length=10)]))
    w.agent("full", engine(), withheld=1)
    w.agent("off", engine())
    w.step(ev.NodeCordoned("off", True))
    request = w.submit(prompt_tokens=50)
    found = told(w, request)
    assert found["quick"].chosen
    assert [n for n, c in found.items() if c.chosen] == ["quick"]
    assert (found["slow"].score, found["quick"].score) == (10**9, 10**6)
    words = {n: c.filtered_by for n, c in found.items()}
    assert words == {
        "quick": "", "slow": "", "small": "context", "full": "no_credit", "off": "cordoned",
    }  # fmt: skip


def test_explanation_does_not_change_with_what_happens_later() -> None:
    w = World()
    for name in ("a", "b"):
        w.agent(name, engine(slots=4))
    first = w.submit()
    before = told(w, first)
    w.submit(5)
    w.agents["b"].die()
    w.advance(10)
    assert told(w, first) == before


def test_each_try_is_told() -> None:
    w = World()
    w.agent("a", engine())
    request = w.submit()
    w.agent("b", engine())
    w.agents["a"].die()
    assert told(w, request, 0)["a"].chosen
    assert told(w, request, 1)["b"].chosen
    assert told(w, request, 1)["a"].filtered_by == "suspect"


def test_only_so_many_are_remembered() -> None:
    w = World(replace(settings(), decision_memory=3))
    w.agent("a", engine(slots=9))
    requests = w.submit(5)
    known = [bool(explain.placements_of(w.scheduler.state, r)) for r in requests]
    assert known == [False, False, True, True, True]


def test_head_of_a_static_batch_is_told() -> None:
    w = World()
    w.agent("a", static(slots=2))
    head, _ = w.submit(2)
    assert told(w, head)["a"].chosen


def waits(w: World, request: object) -> explain.Waits:
    found = explain.waits(w.scheduler.state, request)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_what_a_request_waits_for() -> None:
    w = World()
    w.agent("a", engine(models=[model("m"), model("s", context_length=10)]))
    running, second, third = w.submit(3)
    assert explain.waits(w.scheduler.state, running) is None
    assert (waits(w, second).code, waits(w, third).code) == ("no_credit", "no_credit")
    assert waits(w, third).ahead == 1
    assert waits(w, third).start_bound == 16
    unfit = w.submit(model="s", prompt_tokens=5, task_type="chat")
    assert waits(w, unfit).code == "no_credit"
    item = w.submit(request_class=RequestClass.JOB)
    assert waits(w, item).code == "behind_others"
    w.step(ev.NodeCordoned("a", True))
    assert waits(w, second).code == "no_node"
    assert waits(w, second).candidates == [Candidate("a", "e0", "cordoned")]


def test_what_is_wrong_with_the_engines_of_a_model_is_what_its_requests_wait_for() -> None:
    w = World()
    a, b = w.agent("a"), w.agent("b")
    a.report(unhealthy={"e0": "stalled"})
    b.report(unhealthy={"e0": "down"}, down=["e0"])
    request = w.submit()
    assert waits(w, request).code == "engines_unwell"
    assert [c.filtered_by for c in waits(w, request).candidates] == ["stalled", "down"]
    b.report(unhealthy={"e0": "starting"})
    assert waits(w, request).code == "loading"
    b.report()
    assert explain.waits(w.scheduler.state, request) is None
