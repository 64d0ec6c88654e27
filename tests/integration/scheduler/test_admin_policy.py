"""AdminService: what policy is in force, and another one while requests wait."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service import live_policy
from scheduler_service.config import SchedulerConfig
from scheduler_service.core.outcomes import Outcome
from scheduler_service.policies.ordering import Fifo
from tests.integration.scheduler.admin_world import Served, refusal, serving
from tests.unit.scheduler.small_world import SmallWorld

FIFO = "policies: {order: fifo}\nqueue: {floor_every: 0}\n"


def update(text: str, **fields: Any) -> pb.UpdatePolicyRequest:
    policy = pb.Policy(yaml=text, etag=fields.pop("etag", ""))
    return pb.UpdatePolicyRequest(policy=policy, **fields)


async def get(served: Served) -> pb.Policy:
    policy: pb.Policy = (await served.stub.GetPolicy(pb.GetPolicyRequest())).policy
    return policy


async def refused_text(served: Served, request: pb.UpdatePolicyRequest) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.UpdatePolicy(request)
    return str(caught.value.details())


async def test_what_is_shown_is_what_would_be_read_again() -> None:
    async with serving(SmallWorld()) as served:
        policy = await get(served)
        assert live_policy.read(policy.yaml, SchedulerConfig()).config == SchedulerConfig()
        assert not policy.updated_by
        assert not policy.HasField("update_time")
        answer = await served.stub.UpdatePolicy(update(policy.yaml, etag=policy.etag))
        assert answer.policy == policy
        assert not answer.warnings
        assert not await happened(served)  # nothing was different


async def happened(served: Served) -> list[Any]:
    wanted = pb.ListEventsRequest(events=["policy_updated"])
    return list((await served.stub.ListEvents(wanted)).events)


async def test_those_who_wait_go_by_the_policy_that_was_applied_and_all_of_them_end() -> None:
    """Under load: hundreds wait, some run, and the policy changes four times in between."""
    world = SmallWorld()
    async with serving(world) as served:
        await world.join("n0", slots=2)
        requests = [r for n in range(300) for r in await world.submit(priority=1 + n % 10)]
        for number, text in enumerate((FIFO, "policies: {order: edf}", "queue: {}", FIFO)):
            await served.stub.UpdatePolicy(update(text))
            running = [r for r in requests if r.live]
            await world.finish(*running)
            assert len([r for r in requests if r.live]) == 2, number
        waiting = [r for r in requests if r.in_queue]
        oldest = min(waiting, key=lambda r: r.place)
        await world.finish(*[r for r in requests if r.live])
        assert oldest.live  # fifo: whatever its priority
        while running := [r for r in requests if r.live]:
            await world.finish(*running)
        assert {r.outcome for r in requests} == {Outcome.SUCCEEDED}


async def test_a_change_is_an_event_with_principal_reason_and_what_was_changed() -> None:
    async with serving(SmallWorld()) as served:
        before = await get(served)
        answer = await served.stub.UpdatePolicy(
            update(FIFO, etag=before.etag, reason="the night is long")
        )
        assert answer.previous_yaml == before.yaml
        (event,) = await happened(served)
        changed = "policies.order: aged -> fifo; queue.floor_every: 8 -> 0"
        assert event.message == f"policies changed: {changed}"
        assert event.reason == "the night is long"
        assert event.principal.startswith("anonymous@")
        now = await get(served)
        assert now == answer.policy
        assert now.updated_by == event.principal
        assert now.HasField("update_time")
        assert served.world.driver.scheduler.state.policies.ordering == Fifo()


async def test_what_the_diagnosis_calls_long_is_what_the_policy_says() -> None:
    world = SmallWorld()
    async with serving(world) as served:
        await world.join("n0")
        await world.submit(4)
        await world.pass_time(60)
        wanted = pb.GetReportRequest()

        async def codes() -> set[str]:
            report = (await served.stub.GetReport(wanted)).report
            return {each.code for each in report.diagnosis}

        assert "queue_long" not in await codes()
        await served.stub.UpdatePolicy(update("autoscale: {queue: 2}"))
        assert "queue_long" in await codes()


async def test_a_stale_etag_is_refused_and_changes_nothing() -> None:
    async with serving(SmallWorld()) as served:
        old = await get(served)
        await served.stub.UpdatePolicy(update(FIFO))
        code, reason, metadata, _ = await refusal(
            served.stub.UpdatePolicy(update("queue: {headroom: 1}", etag=old.etag))
        )
        assert (code, reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
        now = await get(served)
        assert metadata == {"etag": now.etag}
        assert "order: fifo" in now.yaml
        assert "headroom: 0" in now.yaml


async def test_a_dry_run_is_judged_by_the_server_and_changes_nothing() -> None:
    async with serving(SmallWorld()) as served:
        before = await get(served)
        answer = await served.stub.UpdatePolicy(update(FIFO, validate_only=True))
        assert "order: fifo" in answer.policy.yaml
        assert answer.policy.etag != before.etag
        assert await get(served) == before
        assert not await happened(served)


async def test_everything_that_is_wrong_with_it_is_said_at_once() -> None:
    wrong = (
        "policies: {order: fiffo, admission: {name: guarded, options: {longst: 3s}}}\n"
        "queue: {floor_every: -1, max_bytes: 12}\n"
        "autoscale: {min: 5, max: 2}\n"
        "colour: red\n"
    )
    async with serving(SmallWorld()) as served:
        for only in (True, False):
            text = await refused_text(served, update(wrong, validate_only=only))
            assert (
                'policies.order.name (policy:1): there is no policy "fiffo"; did you mean "fifo"?'
                in text
            )
            assert "policies.admission.options.longst" in text
            assert "queue.floor_every (policy:2)" in text
            assert "queue.max_bytes (policy:2)" in text
            assert "autoscale.min (policy:3): is 5, above max, which is 2" in text
            assert "colour (policy:4): is no key here" in text
        for empty in ("", " \n", "- a\n"):
            call = served.stub.UpdatePolicy(update(empty))
            code, _, _, field = await refusal(call)
            assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "policy.yaml")


async def test_too_many_faults_are_counted_and_not_cut_in_the_middle() -> None:
    many = "\n".join(f"unknown_{n}: {n}" for n in range(200))
    async with serving(SmallWorld()) as served:
        text = await refused_text(served, update(many))
    *lines, last = text.splitlines()
    assert last == f"and {200 - len(lines)} more"
    assert all("is no key here" in line for line in lines)


async def test_what_takes_a_restart_is_left_alone_and_said() -> None:
    """The file that the scheduler starts with may be applied, too: addresses and all."""
    text = FIFO + "listen: {client_port: 7000}\nhealth: {session_timeout: 9s, warm_up: 5s}\n"
    async with serving(SmallWorld()) as served:
        answer = await served.stub.UpdatePolicy(update(text))
        paths = [warning.split()[0] for warning in answer.warnings]
        assert paths == ["listen.client_port", "health.session_timeout"]
        health = served.world.driver.scheduler.state.settings.health
        assert health.warm_up == 5_000_000_000
        assert health.session_timeout == 3_000_000_000


async def test_it_must_agree_with_what_runs_and_cannot_change() -> None:
    """Models are those that it started with; a default that is none of them is a contradiction."""
    config = SchedulerConfig.model_validate({"models": ["m"]})
    async with serving(SmallWorld(), config=config) as served:
        text = await refused_text(served, update("default_model: never"))
    assert '"never" is not listed in models' in text


async def test_the_edge_is_told_of_defaults_by_task_type() -> None:
    told: list[SchedulerConfig] = []
    async with serving(SmallWorld(), on_policy=told.append) as served:
        await served.stub.UpdatePolicy(update("task_types: {chat: {priority: 9}}"))
    (config,) = told
    assert config.task_defaults().resolve("chat")[1].priority == 9
    assert config.task_defaults().resolve("summarization")[1].priority == 4


async def test_a_fresh_core_after_a_fault_runs_by_the_policy_that_was_applied() -> None:
    """The fault takes what was in the inbox with it: the change is posted again."""
    world = SmallWorld()
    async with serving(world) as served:
        world.driver.post(object())  # type: ignore[arg-type] # no event: a fault of the core
        await served.stub.UpdatePolicy(update(FIFO))
        assert world.fault is not None
        assert world.driver.scheduler.state.policies.ordering == Fifo()


async def test_a_text_that_is_made_to_grow_is_refused_and_changes_nothing() -> None:
    async with serving(SmallWorld()) as served:
        before = await get(served)
        laughs = "\n".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
        assert "more than 10000" in await refused_text(served, update(f"a0: &a0 [x]\n{laughs}"))
        assert "longer than 65536" in await refused_text(served, update("#" * 65_537))
        assert await get(served) == before
