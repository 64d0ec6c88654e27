"""Node messages become what they mean to the core; what breaks a rule is refused by field."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from node_agent.config import AgentConfig
from scheduler_service.core.outcomes import EngineMode, Reason
from scheduler_service.core.types import MILLISECOND, NEVER
from scheduler_service.rpc import convert_node
from scheduler_service.rpc.convert_node import SessionRefused
from scheduler_service.rpc.node_settings import Identity

IDENTITY = Identity("cluster-1", 3)


def engine(**fields: Any) -> pb.EngineDescriptor:
    values: dict[str, Any] = {
        "engine_id": "e1",
        "mode": pb.ENGINE_MODE_STATIC,
        "slots": 4,
        "models": [pb.ModelDescriptor(model="m")],
    }
    return pb.EngineDescriptor(**{**values, **fields})


def descriptor(*engines: pb.EngineDescriptor, **fields: Any) -> pb.NodeDescriptor:
    return pb.NodeDescriptor(engines=engines or [engine()], **fields)


def hello(**fields: Any) -> pb.Hello:
    values: dict[str, Any] = {"node_id": "n1", "boot_id": "b1", "protocol_version": 1}
    return pb.Hello(**{**values, **fields})


def test_descriptor_becomes_a_spec() -> None:
    full = engine(
        mode=pb.ENGINE_MODE_CONTINUOUS,
        max_batch_size=3,
        look_ahead=2,
        batch_key=pb.BatchKeyRules(equal=["params"], max_length_ratio=1.5, max_tokens=99),
        models=[
            pb.ModelDescriptor(
                model="m+a", base_model="m", context_length=512, max_concurrency=2,
                resumable=True, streaming=True, task_types=["chat"], features=["tools"],
            )
        ],
    )  # fmt: skip
    labels = {"batchyard.managed": "true", "rack": "7"}
    node = descriptor(full, role="backup", task_types=["embedding"], labels=labels)
    spec = convert_node.node_spec(node, None)
    (made,) = spec.engines
    (model,) = made.models
    assert (spec.role, spec.task_types, spec.managed) == ("backup", ("embedding",), True)
    assert spec.labels == labels
    assert made.mode is EngineMode.CONTINUOUS
    assert (made.engine_id, made.slots, made.max_batch_size, made.look_ahead) == ("e1", 4, 3, 2)
    assert (made.rules.equal, made.rules.max_length_ratio) == (("params",), 1.5)
    assert made.rules.max_tokens == 99
    assert (model.model, model.base_model, model.context_length) == ("m+a", "m", 512)
    assert (model.max_concurrency, model.resumable, model.streaming) == (2, True, True)
    assert (model.task_types, model.features) == (("chat",), ("tools",))
    assert made.healthy
    assert model.active


def test_what_is_not_said_has_the_stated_default() -> None:
    spec = convert_node.node_spec(descriptor(), None)
    assert (spec.role, spec.managed) == ("primary", False)
    assert not convert_node.node_spec(descriptor(labels={"batchyard.managed": "yes"}), None).managed


def test_report_of_the_hello_tells_health_and_loaded_models() -> None:
    report = pb.NodeReport(
        engines=[
            pb.EngineLoad(
                engine_id="e1",
                health=pb.ENGINE_HEALTH_STARTING,
                models=[pb.ModelLoad(model="m", state=types_pb2.MODEL_STATE_LOADING)],
            )
        ]
    )
    two = descriptor(engine(), engine(engine_id="e2"))
    first, second = convert_node.node_spec(two, report).engines
    assert (first.healthy, first.models[0].active) == (False, False)
    assert (second.healthy, second.models[0].active) == (True, True)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(pb.ENGINE_MODE_STATIC, 20), (pb.ENGINE_MODE_CONTINUOUS, 20 * convert_node.ASSUMED_TOKENS)],
)
def test_profile_gives_the_service_time(mode: pb.EngineMode, expected: int) -> None:
    """Static: of a batch; continuous: per token, times what an output is taken to have."""
    points = [
        pb.ServicePoint(concurrency=1, time=Duration(nanos=20 * MILLISECOND)),
        pb.ServicePoint(concurrency=8, time=Duration(nanos=90 * MILLISECOND)),
    ]
    profile = pb.ServiceProfile(points=points, prefill_tokens_per_second=2_000)
    load = pb.ModelLoad(model="m", profile=profile)
    report = pb.NodeReport(engines=[pb.EngineLoad(engine_id="e1", models=[load])])
    node = descriptor(engine(mode=mode))
    (made,) = convert_node.node_spec(node, report).engines
    assert made.models[0].configured_service == expected * MILLISECOND
    assert convert_node.services(node, report) == {("e1", "m"): expected * MILLISECOND}
    continuous = mode == pb.ENGINE_MODE_CONTINUOUS
    times = ((1, 20 * MILLISECOND), (8, 90 * MILLISECOND))
    assert made.models[0].token_times == (times if continuous else ())
    assert made.models[0].batch_times == (() if continuous else times)
    assert made.models[0].prefill_rate == (2_000 if continuous else 0)


@pytest.mark.parametrize("rate", [1e-300, -5.0, float("nan"), float("inf")])
def test_profile_that_cannot_be_meant_is_not_taken(rate: float) -> None:
    """Neither may the core divide by it, nor a client's estimate be longer than a Duration."""
    points = [pb.ServicePoint(concurrency=1, time=Duration(seconds=(1 << 63) - 1))]
    profile = pb.ServiceProfile(points=points, prefill_tokens_per_second=rate)
    load = pb.ModelLoad(model="m", profile=profile)
    report = pb.NodeReport(engines=[pb.EngineLoad(engine_id="e1", models=[load])])
    for mode in (pb.ENGINE_MODE_STATIC, pb.ENGINE_MODE_CONTINUOUS):
        (made,) = convert_node.node_spec(descriptor(engine(mode=mode)), report).engines
        (model,) = made.models
        assert (model.batch_times, model.token_times, model.prefill_rate) == ((), (), 0)
        longest = convert_node.TIME_MAX * convert_node.ASSUMED_TOKENS
        assert model.configured_service <= longest


@pytest.mark.parametrize(
    ("given", "length"),
    [
        (Duration(seconds=(1 << 63) - 1), NEVER),
        (Duration(seconds=-1), 0),
        (Duration(seconds=2, nanos=-(1 << 31)), 0),
    ],
)
def test_lengths_from_the_wire_stay_within_what_the_core_counts_with(
    given: Duration, length: int
) -> None:
    assert convert_node.nanoseconds(given) == length


def test_report_tells_of_preemptions_where_the_engine_counts_them() -> None:
    loads = [
        pb.EngineLoad(engine_id="e1", preemptions=3, kv_utilization=0.5),
        pb.EngineLoad(engine_id="e2", kv_utilization=0.0),
        pb.EngineLoad(engine_id="e3"),
    ]
    event = convert_node.report_event("n", 1, pb.NodeReport(engines=loads))
    assert event.pressure == {"e1": (3, 0.5), "e2": (None, 0.0)}


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (pb.NodeDescriptor(), "engines"),
        (descriptor(engine(engine_id="")), "engines[0].engine_id"),
        (descriptor(engine(), engine()), "engines"),
        (descriptor(engine(slots=0)), "engines[0].slots"),
        (descriptor(engine(mode=pb.ENGINE_MODE_UNSPECIFIED)), "engines[0].mode"),
        (descriptor(engine(mode=99)), "engines[0].mode"),
        (
            descriptor(engine(), engine(engine_id="e2", models=[pb.ModelDescriptor()])),
            "engines[1].models[0].model",
        ),
        (descriptor(engine(models=[pb.ModelDescriptor(model="m")] * 2)), "engines[0].models"),
        (
            descriptor(engine(batch_key=pb.BatchKeyRules(max_length_ratio=float("nan")))),
            "engines[0].batch_key.max_length_ratio",
        ),
        (
            descriptor(engine(batch_key=pb.BatchKeyRules(max_length_ratio=0.5))),
            "engines[0].batch_key.max_length_ratio",
        ),
    ],
)
def test_bad_descriptor_is_refused_by_field(node: pb.NodeDescriptor, field: str) -> None:
    with pytest.raises(SessionRefused) as refused:
        convert_node.node_spec(node, None)
    error = refused.value.error
    assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert error.field == f"descriptor.{field}"
    assert error.field in error.message
    assert not refused.value.reconnect


@pytest.mark.parametrize(
    ("wrong", "reason", "field"),
    [
        ({"node_id": ""}, Reason.INVALID_ARGUMENT, "hello.node_id"),
        ({"node_id": "x" * 65}, Reason.INVALID_ARGUMENT, "hello.node_id"),
        ({"node_id": "a/b"}, Reason.INVALID_ARGUMENT, "hello.node_id"),
        ({"node_id": "a\n"}, Reason.INVALID_ARGUMENT, "hello.node_id"),
        ({"boot_id": ""}, Reason.INVALID_ARGUMENT, "hello.boot_id"),
        ({"boot_id": "x" * 65}, Reason.INVALID_ARGUMENT, "hello.boot_id"),
        (
            {"running_items": [pb.RunningItem()] * ((1 << 20) + 1)},
            Reason.INVALID_ARGUMENT,
            "hello.running_items",
        ),
        ({"protocol_version": 0}, Reason.UNSUPPORTED_FEATURE, "hello.protocol_version"),
        ({"cluster_id": "cluster-1", "highest_term": 4}, Reason.STALE_TERM, ""),
    ],
)
def test_bad_hello_is_refused(wrong: dict[str, Any], reason: Reason, field: str) -> None:
    with pytest.raises(SessionRefused) as refused:
        convert_node.check_hello(hello(**wrong), IDENTITY)
    assert refused.value.error.reason == reason
    assert refused.value.error.field == field


@pytest.mark.parametrize(
    "fine",
    [
        {"node_id": "GPU-7.rack_1:9000"},
        {"node_id": "x" * 64},
        {"protocol_version": 99},
        {"cluster_id": "cluster-1", "highest_term": 3},
        {"cluster_id": "another", "highest_term": 1000},
    ],
)
def test_good_hello_is_taken(fine: dict[str, Any]) -> None:
    convert_node.check_hello(hello(**fine), IDENTITY)


def test_handed_back_items_say_whether_they_finished() -> None:
    items = [
        pb.RunningItem(dispatch_id=1, state=pb.ITEM_STATE_RUNNING),
        pb.RunningItem(dispatch_id=2, state=pb.ITEM_STATE_FINISHED),
        pb.RunningItem(dispatch_id=3, state=99),
    ]
    running = convert_node.running_items(hello(running_items=items))
    assert [(item.dispatch_id, item.finished) for item in running] == [
        (1, False), (2, True), (3, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("health", "message", "why"),
    [
        (pb.ENGINE_HEALTH_UNSPECIFIED, "", None),
        (pb.ENGINE_HEALTH_SERVING, "warm", None),
        (pb.ENGINE_HEALTH_STARTING, "", "starting"),
        (pb.ENGINE_HEALTH_STALLED, "is silent", "stalled"),
        (pb.ENGINE_HEALTH_DOWN, "exit code 9", "down"),
        (99, "", "health 99"),
    ],
)
def test_report_says_which_engines_cannot_serve(health: Any, message: str, why: str | None) -> None:
    load = pb.EngineLoad(engine_id="e1", health=health, message=message)
    event = convert_node.report_event("n1", 5, pb.NodeReport(engines=[load]))
    assert event.unhealthy == ({} if why is None else {"e1": why})
    assert event.down == (["e1"] if health == pb.ENGINE_HEALTH_DOWN else [])


def test_report_lists_what_really_runs() -> None:
    models = [
        pb.ModelLoad(model="a", state=types_pb2.MODEL_STATE_ACTIVE),
        pb.ModelLoad(model="b", state=types_pb2.MODEL_STATE_AVAILABLE),
        pb.ModelLoad(model="c"),
        pb.ModelLoad(model="d", state=99),
    ]
    loads = [
        pb.EngineLoad(engine_id="e1", running_dispatch_ids=[1, 2], waiting_dispatch_ids=[3]),
        pb.EngineLoad(engine_id="e2", models=models),
    ]
    event = convert_node.report_event("n1", 5, pb.NodeReport(items_received=7, engines=loads))
    assert (event.node_id, event.epoch, event.items_received) == ("n1", 5, 7)
    assert event.held == {"e1": [1, 2, 3], "e2": []}
    assert event.inactive_models == {"e2": ["b", "d"]}


def test_absent_token_credit_is_no_limit() -> None:
    totals = [
        pb.Credit(engine_id="e1", total_inputs=3),
        pb.Credit(engine_id="e2", total_inputs=4, total_tokens=0),
    ]
    assert convert_node.credit_totals(totals) == [("e1", 3, None), ("e2", 4, 0)]


def test_running_is_what_an_engine_began() -> None:
    states = [
        pb.ITEM_STATE_RECEIVED, pb.ITEM_STATE_RUNNING, pb.ITEM_STATE_FIRST_TOKEN,
        pb.ITEM_STATE_PAUSED, pb.ITEM_STATE_FINISHED, 99,
    ]  # fmt: skip
    updates = [pb.ItemUpdate(dispatch_id=n, state=state) for n, state in enumerate(states)]
    assert convert_node.running_ids(updates) == [1, 2]


def end_of(**fields: Any) -> Any:
    return convert_node.item_end(wire_pb2.PackedItemResult(dispatch_id=9, attempt=2, **fields))


@pytest.mark.parametrize("name", ["STOP", "LENGTH", "TOOL_CALLS", "CONTENT_FILTER", "COMPLETE"])
def test_answer_has_no_reason(name: str) -> None:
    finish = types_pb2.FinishReason.Value(f"FINISH_REASON_{name}")
    end = end_of(finish_reason=finish, usage=types_pb2.Usage(output_tokens=7), outputs=[b"x"])
    assert (end.dispatch_id, end.reason, end.output_tokens) == (9, Reason.NONE, 7)
    assert end.payload.outputs == [b"x"]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (types_pb2.FINISH_REASON_CANCELLED, Reason.CANCELLED_BY_CLIENT),
        (types_pb2.FINISH_REASON_EXPIRED, Reason.DEADLINE_EXCEEDED),
        (types_pb2.FINISH_REASON_ERROR, Reason.ENGINE_ERROR),
        (types_pb2.FINISH_REASON_REJECTED, Reason.ENGINE_ERROR),
        (types_pb2.FINISH_REASON_UNSPECIFIED, Reason.ENGINE_ERROR),
        (99, Reason.ENGINE_ERROR),
    ],
)
def test_end_without_answer_and_error_is_a_failure(finish: Any, reason: Reason) -> None:
    end = end_of(finish_reason=finish)
    assert end.reason is reason
    assert end.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"reason": 67, "code": 13}, Reason.ENGINE_ERROR),
        ({"reason": 3, "code": 13}, Reason.CONTEXT_TOO_LONG),
        ({"reason": 60, "code": 10}, Reason.PREEMPTED),
        ({"reason": 0, "code": 3}, Reason.INVALID_ARGUMENT),
        ({"reason": 999, "code": 8}, Reason.ENGINE_BUSY),
        ({"reason": 999, "code": 14}, Reason.ENGINE_UNAVAILABLE),
        ({"reason": 999, "code": 2}, Reason.ENGINE_ERROR),
        ({"reason": 999, "code": 77}, Reason.ENGINE_ERROR),
        ({}, Reason.ENGINE_ERROR),
    ],
)
def test_error_has_its_reason_or_that_of_its_code(error: dict[str, Any], reason: Reason) -> None:
    end = end_of(finish_reason=types_pb2.FINISH_REASON_STOP, error=types_pb2.Error(**error))
    assert end.reason is reason


def test_error_of_an_agent_is_kept_short() -> None:
    end = end_of(error=types_pb2.Error(code=13, message="x" * 9999, metadata={"a": "b"}))
    assert len(end.message) == convert_node.MESSAGE_CHARS
    assert end.metadata == {"a": "b"}


@pytest.mark.parametrize(
    "finish", [types_pb2.FINISH_REASON_UNSPECIFIED, types_pb2.FINISH_REASON_STOP]
)
def test_refused_item_never_counts_as_answered(finish: Any) -> None:
    end = end_of(refused=True, finish_reason=finish)
    assert end.refused
    assert end.reason is Reason.ENGINE_BUSY


def test_epochs_grow_and_carry_the_term() -> None:
    identity = Identity("c", 3)
    assert [identity.next_epoch(), identity.next_epoch()] == [3 << 40 | 1, 3 << 40 | 2]


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (descriptor(*(engine(engine_id=f"e{n}") for n in range(65))), "engines"),
        (
            descriptor(engine(models=[pb.ModelDescriptor(model=f"m{n}") for n in range(1_001)])),
            "engines.models",
        ),
        (descriptor(labels={str(n): "x" for n in range(65)}), "labels"),
        (descriptor(task_types=["chat"] * 65), "task_types"),
        (descriptor(gpus=[pb.GpuDescriptor()] * 257), "gpus"),
        (descriptor(engine(slots=1 << 21)), "engines[0].slots"),
        (descriptor(price_per_hour={"micros": -1}), "price_per_hour.micros"),
        (descriptor(price_per_hour={"micros": (1 << 63) - 1}), "price_per_hour.micros"),
    ],
)
def test_what_a_node_names_has_bounds(node: pb.NodeDescriptor, field: str) -> None:
    """A rogue agent cannot fill the scheduler's tables and metrics."""
    with pytest.raises(SessionRefused) as caught:
        convert_node.node_spec(node, None)
    assert caught.value.error.field == f"descriptor.{field}"
    assert len(str(caught.value)) < 200


def test_dearest_price_that_an_agent_may_be_configured_with_is_taken() -> None:
    """In currencies of small units an ordinary node costs millions an hour."""
    config = {"engines": [{"kind": "simulated"}], "price_per_hour": "999999999.999999 VND"}
    price = AgentConfig.model_validate(config).price_per_hour
    assert price is not None
    node = descriptor(price_per_hour={"micros": price.micros, "currency": price.currency})
    assert convert_node.node_spec(node, None).engines


def test_faults_of_many_unreadable_answers_are_told_and_few_of_them_looked_for() -> None:
    """To look for each could hold up everybody for a minute."""
    message = wire_pb2.PackedConnectRequest()
    for dispatch_id in range(1, 101):
        message.results.add(dispatch_id=dispatch_id, timings=b"\x0a\x7f")
    message.results.add(dispatch_id=101, timings=b"")
    convert_node.fail_unreadable(message.results)
    *bad, good = [convert_node.item_end(result) for result in message.results]
    assert {end.reason for end in bad} == {Reason.ENGINE_ERROR}
    assert [end.message.endswith("at timings") for end in bad] == [True] * 16 + [False] * 84
    assert good.dispatch_id == 101
    assert "no valid protobuf" not in good.message


HELD = pb.EngineLoad(running_dispatch_ids=[1], waiting_dispatch_ids=[2] * (1 << 20))


@pytest.mark.parametrize(
    ("report", "field"),
    [
        (pb.NodeReport(engines=[pb.EngineLoad()] * 65), "engines"),
        (pb.NodeReport(engines=[pb.EngineLoad(models=[pb.ModelLoad()] * 1_001)]), "engines.models"),
        (pb.NodeReport(gpus=[pb.GpuLoad()] * 257), "gpus"),
        (pb.NodeReport(named_metrics={str(n): 1.0 for n in range(65)}), "named_metrics"),
        (pb.NodeReport(engines=[HELD]), "engines"),
    ],
)
def test_what_a_node_reports_has_bounds(report: pb.NodeReport, field: str) -> None:
    with pytest.raises(SessionRefused) as caught:
        convert_node.check_report(report)
    assert caught.value.error.field == f"report.{field}"
    assert caught.value.reconnect
