"""What the diagnosis says of a window, in both languages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler_service.core.events import (
    NodeCordoned,
    PoolPaused,
    ReportReceived,
    SessionBroken,
)
from scheduler_service.core.outcomes import EngineMode, Reason
from scheduler_service.core.settings import AutoscaleSettings, CoreSettings, QueueSettings
from scheduler_service.core.types import SECOND
from scheduler_service.report import diagnosis
from scheduler_service.report.diagnosis import Case, Finding, Severity, Thresholds, diagnose
from scheduler_service.report.texts import LANGUAGES, REPORT_NAME, SENTENCES, language_of
from scheduler_service.report.window import Window
from tests.unit.scheduler.small_world import SmallWorld


def found(world: SmallWorld, seconds: int = 60, **thresholds: Any) -> dict[str, Finding]:
    """By code."""
    now = world.clock.now()
    case = Case(
        Window(world.statistics, now, seconds * SECOND),
        Thresholds(**thresholds),
        world.statistics.node_joined,
        len(world.nodes),
        now - world.statistics.started_at,
    )
    findings = diagnose(case)
    assert findings, "something is always said"
    assert sorted(findings, key=lambda f: -f.severity) == findings
    for finding in findings:
        for language in LANGUAGES:
            written = diagnosis.write(finding, language)
            assert "{" not in written.text + written.reason
    return {finding.code: finding for finding in findings}


async def test_a_scheduler_that_has_just_started_says_so() -> None:
    world = SmallWorld()
    await world.pass_time(5)
    assert found(world).keys() == {"starting"}


async def test_spans_that_no_collector_took_are_told_as_long_as_it_goes_on() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.pass_time(5)
    world.statistics.spans.dropped = 7
    world.statistics.spans.failed = 3
    await world.pass_time(5)
    assert found(world)["spans_lost"].variables == {"count": "10"}
    assert "spans_lost" not in found(world, seconds=3)


async def test_nodes_whose_engines_do_not_answer_are_told_while_it_goes_on() -> None:
    world = SmallWorld()
    hung, off, loads = [await world.join(name) for name in ("hung", "off", "loads")]

    async def report(word: str) -> None:
        for node in (hung, off):
            unhealthy = {"e0": word} if word else {}
            await world.post(ReportReceived(node.node_id, node.epoch, 0, {}, unhealthy=unhealthy))

    await world.post(
        ReportReceived("loads", loads.epoch, 0, {}, unhealthy={"e0": "starting"}),
        NodeCordoned("off", True),
    )
    await report("stalled")
    await world.pass_time(9)
    assert "engines_unwell" not in found(world)
    await report("down")
    await world.pass_time(2)
    said = found(world)
    assert said["engines_unwell"].variables == {
        "count": "1", "nodes": "hung (down)", "node": "hung",
    }  # fmt: skip
    assert "idle" not in said
    await report("")
    await world.pass_time(1)
    assert "engines_unwell" not in found(world)


async def test_nothing_to_do_is_idle() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.pass_time(5)
    assert found(world).keys() == {"idle"}


async def test_all_is_well_when_requests_are_answered() -> None:
    world = SmallWorld()
    await world.join("n0")
    for _ in range(5):
        await world.finish(*await world.submit(1))
        await world.pass_time(1)
    said = found(world)
    assert said.keys() == {"healthy"}
    assert said["healthy"].variables["succeeded"] == "5"


async def test_a_queue_that_was_long_for_most_of_the_window_is_told() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.submit(9)
    await world.pass_time(10)
    said = found(world)
    assert said["queue_long"].variables == {
        "pool": "m", "waiting": "8", "threshold": "5", "percent": "100",
    }  # fmt: skip
    assert said["wait_long"].variables["seconds"] == "10.0"
    assert "nodes_idle" not in said
    assert "healthy" not in said


async def test_a_paused_pool_is_told_as_such_and_not_as_nodes_that_do_not_keep_up() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.finish(*await world.submit(1))  # a pool is there once it was asked for
    await world.post(PoolPaused("m", True))
    await world.pass_time(5)
    said = found(world)
    assert said["pool_paused"].severity is Severity.INFO
    await world.submit(9)
    await world.pass_time(60)
    said = found(world)
    assert said.keys() == {"pool_paused"}
    assert said["pool_paused"].severity is Severity.WARNING
    assert said["pool_paused"].variables == {"pool": "m", "waiting": "9"}
    await world.post(PoolPaused("m", False))
    await world.pass_time(3)
    assert "pool_paused" not in found(world)


async def test_a_queue_that_was_long_for_a_moment_is_not_told() -> None:
    world = SmallWorld()
    await world.join("n0")
    requests = await world.submit(9)
    await world.pass_time(3)
    await world.finish(*requests)
    await world.pass_time(10)
    assert found(world).keys() == {"healthy"}


async def test_idle_nodes_beside_a_long_queue_are_told() -> None:
    world = SmallWorld()
    await world.join("busy")
    await world.join("other", task_types=("embedding",))
    await world.submit(9, task_type="chat")
    await world.pass_time(10)
    said = found(world)
    assert said["nodes_idle"].variables["idle"] == "1"
    assert said["nodes_idle"].severity is Severity.WARNING


async def test_nodes_that_may_not_work_are_not_idle() -> None:
    world = SmallWorld()
    await world.join("busy")
    node = await world.join("cordoned", task_types=("embedding",))
    await world.post(NodeCordoned(node.node_id, True))
    await world.submit(9, task_type="chat")
    await world.pass_time(10)
    assert "nodes_idle" not in found(world)


async def test_requests_without_any_node_are_critical_after_ten_seconds() -> None:
    patient = CoreSettings(queue=QueueSettings(no_node_grace=300 * SECOND))
    world = SmallWorld(patient)
    node = await world.join("n0")
    await world.pass_time(40)
    await world.post(SessionBroken("n0", node.epoch))
    await world.pass_time(3)
    await world.submit(2)
    await world.pass_time(8)
    assert "no_node" not in found(world)
    await world.pass_time(3)
    said = found(world)
    assert next(iter(said)) == "no_node"
    assert said["no_node"].severity is Severity.CRITICAL
    assert said["no_node"].variables == {"pool": "m", "waiting": "2", "seconds": "11"}
    assert said["node_lost"].variables == {"count": "1", "nodes": "n0"}


@pytest.mark.parametrize(
    ("failed", "severity"), [(1, None), (3, Severity.WARNING), (6, Severity.CRITICAL)]
)
async def test_a_node_that_fails_often_is_named(failed: int, severity: Severity | None) -> None:
    world = SmallWorld()
    await world.join("n0", slots=10)
    requests = await world.submit(10, max_attempts=1)
    await world.finish(*requests[:failed], reason=Reason.ENGINE_ERROR)
    await world.finish(*requests[failed:])
    await world.pass_time(3)
    said = found(world).get("node_failing")
    assert (said.severity if said else None) == severity
    if said:
        assert said.variables["failed"] == str(failed)
        assert said.variables["node"] == "n0"


async def test_a_node_that_is_slower_than_the_others_is_named() -> None:
    world = SmallWorld()
    for node_id in ("a", "b", "slow"):
        await world.join(node_id, slots=5)
    requests = await world.submit(15)
    quick = [r for r in requests if r.attempts[0].node.node_id != "slow"]
    await world.pass_time(1)
    await world.finish(*quick)
    await world.pass_time(2)
    await world.finish(*[r for r in requests if r not in quick])
    await world.pass_time(1)
    said = found(world)
    assert said["node_slow"].variables == {
        "node": "slow", "model": "m", "latency": "3.0", "median": "1.0",
    }  # fmt: skip


async def test_a_pool_at_its_most_nodes_under_pressure_is_told() -> None:
    scaled = CoreSettings(autoscale=AutoscaleSettings(enabled=True, max_nodes=1))
    world = SmallWorld(scaled)
    await world.join("n0")
    await world.submit(9)
    await world.pass_time(10)
    assert found(world, max_nodes=1)["scaled_at_max"].variables["max"] == "1"
    assert "scaled_at_max" not in found(world, max_nodes=2)
    assert "scaled_at_max" not in found(world)


async def test_refusals_are_told_with_their_main_reason() -> None:
    world = SmallWorld()
    await world.join("n0", slots=9)
    await world.finish(*await world.submit(4))
    await world.submit(4, model="unknown")
    await world.pass_time(3)
    said = found(world)["rejects"]
    assert said.severity is Severity.CRITICAL
    assert said.variables == {
        "count": "4", "received": "8", "percent": "50", "reason": "MODEL_NOT_FOUND",
    }  # fmt: skip


async def test_missed_deadlines_are_told() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.submit(1)
    await world.submit(3, deadline=world.clock.now() + SECOND)
    await world.pass_time(5)
    assert found(world)["deadlines_missed"].variables["count"] == "3"


async def test_failed_requests_are_told_though_nothing_waits_and_no_node_is_to_blame() -> None:
    """They were "All is well. 0 of 3 requests succeeded.": their only node had gone."""
    world = SmallWorld(CoreSettings(queue=QueueSettings(no_node_grace=SECOND)))
    gone = await world.join("n0")
    await world.post(SessionBroken("n0", gone.epoch))
    await world.pass_time(3)
    await world.submit(3)
    await world.pass_time(5)
    told = found(world)["requests_failed"]
    assert told.severity is Severity.CRITICAL
    assert told.variables == {"count": "3", "ended": "3", "percent": "100"}


async def test_many_degraded_requests_are_told() -> None:
    world = SmallWorld()
    await world.join("n0", models=["small"], slots=9)
    gone = await world.join("n1", models=["big"])
    await world.post(SessionBroken("n1", gone.epoch))
    await world.pass_time(3)
    await world.finish(*await world.submit(4, model="big", degrade=("small",)))
    await world.pass_time(3)
    assert found(world)["degraded"].variables["count"] == "4"


async def test_half_empty_batches_beside_a_queue_are_told() -> None:
    world = SmallWorld()
    await world.join("n0", slots=8, mode=EngineMode.STATIC)
    await world.join("n1", slots=1, models=["other"])
    for _ in range(10):
        requests = await world.submit(2)
        await world.pass_time(0.5)
        await world.finish(*requests)
    assert "batch_fill_low" not in found(world)
    for sample in Window(world.statistics, world.clock.now(), 60 * SECOND).samples:
        sample.pools["m"].waiting = 1
    assert found(world)["batch_fill_low"].variables == {
        "pool": "m", "batches": "10", "percent": "25",
    }  # fmt: skip


def test_every_sentence_has_every_language_and_the_same_variables() -> None:
    for code, by_language in SENTENCES.items():
        assert by_language.keys() == set(LANGUAGES), code
        variables = [
            {name for text in texts for name in re.findall(r"{(\w+)}", text)}
            for texts in by_language.values()
        ]
        assert variables[0] == variables[1], code
    assert REPORT_NAME["en"] == "Batchyard inference scheduling report"
    assert REPORT_NAME["zh"] == "Batchyard 推理调度报告"


@pytest.mark.parametrize(
    ("asked", "language"), [("zh", "zh"), ("zh-CN", "zh"), ("en", "en"), ("", "en"), ("fr", "en")]
)
def test_an_unknown_language_is_english(asked: str, language: str) -> None:
    assert language_of(asked) == language
