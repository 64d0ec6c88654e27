"""ExplainRequest: what a request waits for, and what was decided for it."""

from __future__ import annotations

import grpc
import pytest

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service.core.events import NodeCordoned, SessionBroken
from scheduler_service.core.outcomes import Reason, RequestClass
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import SECOND
from scheduler_service.report import explain_texts
from tests.integration.scheduler.admin_world import Served, refusal, serving
from tests.unit.scheduler.small_world import SmallWorld


async def explained(served: Served, request_id: str, **fields: object) -> pb.ExplainRequestResponse:
    asked = pb.ExplainRequestRequest(request_id=request_id, **fields)  # type: ignore[arg-type]
    answer: pb.ExplainRequestResponse = await served.stub.ExplainRequest(asked)
    return answer


async def test_a_waiting_request_learns_its_place_and_which_nodes_are_out_and_why() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("busy", slots=1)
        await world.join("off")
        await world.post(NodeCordoned("off", True))
        first, urgent = await world.submit(2, priority=9)
        (late,) = await world.submit(priority=3)
        await world.pass_time(4)
        await world.finish(first)
        await world.submit(priority=9)
        answer = await explained(served, late.request_id)
    wait = answer.wait
    assert (wait.code, wait.ahead) == ("no_credit", 1)
    assert "full" in wait.text
    assert "10 = most urgent" in wait.ahead_reason
    assert {c.node_id: c.filtered_by for c in wait.nodes} == {
        "busy": "no_credit", "off": "cordoned",
    }  # fmt: skip
    assert wait.start_bound > 0
    assert wait.estimated_start.ToSeconds() == 8  # the two before it, of 4 s each
    assert [d.kind for d in answer.decisions] == ["admit"]
    assert urgent.attempts


async def test_who_is_ahead_is_told_by_priority_and_why() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=1)
        await world.submit(priority=9)
        await world.submit(2, priority=9)
        await world.submit(priority=3)
        (late,) = await world.submit(priority=3)
        await world.submit(2, priority=3)  # these came after it
        (item,) = await world.submit(request_class=RequestClass.JOB)
        wait = (await explained(served, late.request_id)).wait
        assert wait.ahead == 3
        assert wait.ahead_reason.startswith(
            "2 of priority 9, 1 of its own priority 3 that came before it (10 = most urgent"
        )
        wait = (await explained(served, item.request_id)).wait
        assert wait.ahead == 6
        assert wait.ahead_reason.startswith("6 open calls (open calls go before items of jobs")


async def test_a_request_without_a_node_says_what_would_make_it_run() -> None:
    async with serving(SmallWorld(CoreSettings(known_models=("m",)))) as served:
        await served.world.submit(1, request_id="alone")
        english = (await explained(served, "alone")).wait
        chinese = (await explained(served, "alone", language="zh")).wait
    assert (english.code, chinese.code) == ("no_node", "no_node")
    assert "start an agent" in english.text
    assert "启动" in chinese.text


async def test_a_finished_request_tells_every_decision_with_the_losers() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        first = await world.join("n0", slots=1)
        (request,) = await world.submit(task_type="chat", priority=7)
        await world.join("n1", slots=1)
        await world.pass_time(1)
        await world.post(SessionBroken("n0", first.epoch))
        await world.pass_time(4)
        await world.finish(request)
        answer = await explained(served, request.request_id)
        kinds = [d.kind for d in answer.decisions]
        assert kinds == ["admit", "order", "place", "order", "place", "fail_over", "finish"]
        placed = answer.decisions[4]
        assert placed.outcome == "n1/e0"
        assert {c.node_id: (c.chosen, c.filtered_by) for c in placed.candidates} == {
            "n1": (True, ""), "n0": (False, "suspect"),
        }  # fmt: skip
        assert answer.decisions[5].reason == "attempt 1 on n0 ended with NODE_LOST"
        assert answer.decisions[-1].outcome == "succeeded"
        assert not answer.HasField("wait")
        assert not answer.incomplete
        again, token = [], ""
        while True:
            page = await explained(served, request.request_id, page_size=2, page_token=token)
            again += [d.kind for d in page.decisions]
            token = page.next_page_token
            if not token:
                break
        assert again == kinds


async def test_a_refusal_and_a_substitution_are_explained() -> None:
    async with serving(SmallWorld(CoreSettings(known_models=("big",)))) as served:
        world = served.world
        await world.join("n0", models=["small"])
        (refused,) = await world.submit(model="nobody-has-it")
        (degraded,) = await world.submit(model="big", degrade=("small",), max_wait=2 * SECOND)
        await world.pass_time(3)
        answer = await explained(served, refused.request_id)
        assert next((d.kind, d.outcome) for d in answer.decisions) == ("admit", "rejected")
        assert answer.decisions[0].reason.startswith(f"{refused.reason.name}: no model")
        answer = await explained(served, degraded.request_id)
        (substitution,) = [d for d in answer.decisions if d.kind == "degrade"]
        assert substitution.outcome == "small"
        assert "instead of big" in substitution.reason


async def test_what_is_no_longer_remembered_is_said_to_be_incomplete() -> None:
    async with serving(SmallWorld(CoreSettings(decision_memory=2))) as served:
        world = served.world
        await world.join("n0", slots=9)
        (request,) = await world.submit()
        await world.pass_time(1)
        await world.submit(4)
        answer = await explained(served, request.request_id)
        assert answer.incomplete
        (place,) = [d for d in answer.decisions if d.kind == "place"]
        assert not place.candidates
        assert "no longer remembered" in place.reason


async def test_an_unknown_request_is_not_found() -> None:
    async with serving(SmallWorld()) as served:
        code, reason, _, _ = await refusal(
            served.stub.ExplainRequest(pb.ExplainRequestRequest(request_id="never"))
        )
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, Reason.RESOURCE_NOT_FOUND.name)


@pytest.mark.parametrize("table", [explain_texts.WAITS, explain_texts.AHEAD, explain_texts.REASONS])
async def test_every_text_is_there_in_every_language(table: dict[str, dict[str, str]]) -> None:
    for code, texts in table.items():
        assert set(texts) == {"en", "zh"}, code
