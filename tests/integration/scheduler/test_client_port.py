"""Calls that go well: the same work and the same answers, whichever way they come in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from node_agent.engines.interface import Item
from node_agent.engines.simulated_text import check_text
from scheduler_service.rpc.intake import FEATURES
from tests.integration.scheduler.harness import (
    MODEL,
    STREAMS,
    TERM,
    WAYS,
    World,
    prompt,
    running_world,
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as running:
        await running.add_agent(slots=8)
        yield running


@pytest.mark.parametrize("way", WAYS)
async def test_answer_is_the_engines_whatever_the_way_in(world: World, way: str) -> None:
    answer = await world.ask(way, prompt("hello [[tokens=40]]", request_id="a-1", priority=7))
    assert answer.error is None
    assert answer.result is not None
    assert check_text(answer.text)[0][1:] == (0, 39)
    result = answer.result
    assert (result.request_id, result.model, result.node_id) == ("a-1", MODEL, "n1")
    assert result.finish_reason == types_pb2.FINISH_REASON_STOP
    assert result.usage.output_tokens == 40
    assert result.usage.input_tokens > 0
    (attempt,) = result.attempts
    assert (attempt.number, attempt.node_id, attempt.engine_id) == (1, "n1", "simulated")
    assert attempt.state == types_pb2.ATTEMPT_STATE_SUCCEEDED
    assert attempt.dispatch_id >> 40 == TERM
    times = result.timings
    assert 0 < times.receive_time.seconds <= times.finish_time.seconds
    assert times.dispatch_time.ToNanoseconds() <= times.finish_time.ToNanoseconds()
    assert times.queue_duration.ToNanoseconds() >= 0
    assert times.HasField("engine")
    assert times.HasField("first_token_time") is (way in STREAMS)
    assert answer.status in (None, grpc.StatusCode.OK)
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_each_call_has_one_result_and_it_comes_last(world: World, way: str) -> None:
    answer = await world.ask(way, prompt("[[tokens=9]]"))
    assert answer.order.count("result") == 1
    assert answer.order[-1] == "result"


@pytest.mark.parametrize("way", STREAMS)
async def test_streamed_output_is_the_whole_in_order_and_dense(world: World, way: str) -> None:
    request = prompt("[[tokens=300]]", request_id="s-1")
    answer = await world.ask(way, request)
    assert answer.order[:2] == ["accepted", "started"]
    assert set(answer.order[2:-1]) == {"delta"}
    end = 0
    for choice, channel, offset, text in answer.rows:
        assert (choice, channel, offset) == (0, 0, end)
        end += len(text.encode())
    assert check_text(answer.text)[0][1:] == (0, 299)
    assert answer.result is not None
    assert not answer.result.outputs, "it went as deltas"
    (accepted,) = answer.accepted
    assert (accepted.request_id, accepted.attached) == ("s-1", False)
    assert accepted.HasField("queue_position")
    (started,) = answer.started
    assert (started.attempt, started.node_id, started.model) == (1, "n1", MODEL)
    assert started.output_id == answer.result.output_id == answer.result.attempts[0].output_id
    again = await world.ask("generate", request)  # the same request: its answer is given again
    assert again.result is not None
    assert again.result.replayed
    assert again.result.outputs[0].text == answer.text


@pytest.mark.parametrize("way", STREAMS)
async def test_several_choices_stream_side_by_side(world: World, way: str) -> None:
    request = prompt("[[tokens=30]]", params=inference_pb2.GenerationParams(n=3))
    answer = await world.ask(way, request)
    for choice in range(3):
        text = "".join(text for c, _, _, text in answer.rows if c == choice)
        assert check_text(text)[0][1:] == (0, 29)


async def test_answers_come_in_any_order_and_each_to_its_call(world: World) -> None:
    stream = await world.multiplex()
    first, second, third = await stream.start(
        prompt("[[sleep=300ms]][[tokens=1]]"), prompt("[[tokens=2]]"), prompt("[[tokens=3]]")
    )
    for exchange, tokens in ((third, 3), (second, 2)):
        assert len(check_text((await exchange.wait()).text)) == 1
        assert exchange.answer.result is not None
        assert exchange.answer.result.usage.output_tokens == tokens
    assert not first.ended.is_set()
    assert (await first.wait()).error is None


async def test_500_mixed_calls_on_one_stream_all_end_once(world: World) -> None:
    stream = await world.multiplex()
    new = [
        stream.new(prompt(f"[[tokens={1 + n % 20}]]", priority=n % 11), stream=n % 2 == 0)
        for n in range(500)
    ]
    for at in range(0, 500, 50):
        await stream.send(calls=[call for _, call in new[at : at + 50]])
    for n, (exchange, _) in enumerate(new):
        answer = await exchange.wait()
        assert answer.error is None
        assert check_text(answer.text)[0][1:] == (0, n % 20)
    await stream.done()
    assert await stream.wait() is grpc.StatusCode.OK
    await world.settled()


async def test_more_than_256_streams_at_once_do_not_hold_back_results(world: World) -> None:
    """A message takes 256 deltas; results of calls without deltas go along all the same."""
    stream = await world.multiplex()
    exchanges = await stream.start(*(prompt("[[tokens=50]]") for _ in range(400)), stream=True)
    for exchange in exchanges:
        answer = await exchange.wait()
        assert answer.order[0] == "accepted"
        assert answer.order.index("started") < answer.order.index("delta")


async def test_stream_that_is_done_ends_after_its_last_result(world: World) -> None:
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt("[[sleep=100ms]]"))
    await stream.done()
    assert await stream.wait() is grpc.StatusCode.OK
    assert exchange.answer.result is not None


async def test_half_closing_is_as_good_as_done(world: World) -> None:
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt("[[sleep=100ms]]"))
    await stream.call.done_writing()
    assert await stream.wait() is grpc.StatusCode.OK
    assert exchange.answer.error is None


async def test_open_grants_what_it_can_and_names_the_limits(world: World) -> None:
    stream = await world.multiplex()
    await stream.close()
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt())
    await exchange.wait()
    first = stream.messages[0]
    assert first.HasField("opened")
    assert first.opened.stream_id
    assert first.max_outstanding == world.limits.max_outstanding
    assert first.opened.limits.max_request_bytes == world.limits.max_request_bytes
    assert not any(message.HasField("opened") for message in stream.messages[1:])


async def test_wanted_features_are_granted_where_they_exist(world: World) -> None:
    stream = await world.multiplex(reads=True)
    await stream.close()
    second = type(stream)(world.channel)
    world.streams.append(second)
    await second.open(features=["attach", "telepathy"])
    (exchange,) = await second.start(prompt())
    await exchange.wait()
    assert list(second.messages[0].opened.features) == ["attach"]


# Which test tries what GetServerInfo.features promises.
FEATURES_TRIED = {
    "generate": "test_client_port.py::test_answer_is_the_engines_whatever_the_way_in",
    "generate_stream": "test_client_port.py::test_streamed_output_is_the_whole_in_order_and_dense",
    "multiplex": "test_client_port.py::test_500_mixed_calls_on_one_stream_all_end_once",
    "cancel": "test_client_port_endings.py::test_work_ends_with_its_caller",
    "attach": "test_client_port_sharing.py::test_joining_with_offsets_gets_exactly_the_rest",
    "degrade": "test_client_port_sharing.py::test_substitute_answers_where_that_was_allowed",
    "continue": "test_client_port_sharing.py::test_output_goes_on_elsewhere_without_a_seam",
    "restart": "test_client_port_sharing.py::test_output_starts_again_where_that_was_allowed",
    "explain_request": (
        "test_explain_request.py::test_a_finished_request_tells_every_decision_with_the_losers"
    ),
    "pause_pool": (
        "test_admin_holds.py::test_a_pause_answers_with_the_pool_and_its_event_names_who_asked"
    ),
    "freeze_autoscale": "test_admin_holds.py::test_a_freeze_is_shown_with_its_end",
    "set_log_level": (
        "test_admin_holds.py::test_the_log_level_changes_at_once_and_back_to_what_is_configured"
    ),
    "policy": (
        "test_admin_policy.py::"
        "test_those_who_wait_go_by_the_policy_that_was_applied_and_all_of_them_end"
    ),
    "load_model": "test_admin_models.py::test_a_load_is_answered_once_the_agent_has_begun",
    "unload_model": "test_admin_models.py::test_what_the_agent_refuses_is_the_callers_error",
}


def test_every_feature_is_tried_by_a_test() -> None:
    assert set(FEATURES_TRIED) == set(FEATURES)
    for where in FEATURES_TRIED.values():
        file, _, name = where.partition("::")
        assert f"def {name}(" in Path(__file__).with_name(file).read_text(encoding="utf-8")


async def test_server_info_names_identity_features_and_limits(world: World) -> None:
    info = await world.method("GetServerInfo")(scheduler_service_pb2.GetServerInfoRequest())
    assert (info.version, info.instance_id, info.cluster_id) == ("1.2.3", "i1", "c1")
    assert (info.term, info.protocol_version) == (TERM, 1)
    assert tuple(info.features) == FEATURES
    assert info.limits.max_timeout == Duration(seconds=24 * 3600)
    assert info.server_time.seconds > 0


async def test_embeddings_tensors_tokens_chat_and_raw_bodies_are_served(world: World) -> None:
    turn = inference_pb2.ChatMessage(
        role="user", parts=[inference_pb2.ContentPart(text="[[tokens=2]] 你好")]
    )
    tensor = inference_pb2.Tensor(name="x", datatype="FP32", shape=[2], data=b"\0" * 8)
    inputs = {
        "chat": inference_pb2.ChatInput(messages=[turn]),
        "tokens": inference_pb2.TokenInput(ids=[1, 2, 3]),
        "embedding": inference_pb2.EmbeddingInput(texts=["a", "b"]),
        "tensors": inference_pb2.TensorInput(tensors=[tensor]),
        "raw": inference_pb2.RawInput(content_type="application/json", data=b"{}"),
    }
    for way in WAYS:
        for kind, given in inputs.items():
            request = inference_pb2.InferenceRequest(model=MODEL)
            getattr(request, kind).CopyFrom(given)
            answer = await world.ask(way, request)
            assert answer.error is None, (way, kind)
            assert answer.result is not None
            assert answer.text or answer.result.outputs, (way, kind)


@pytest.mark.parametrize("way", WAYS)
async def test_labels_come_back_with_the_result(world: World, way: str) -> None:
    answer = await world.ask(way, prompt(labels={"team": "蓝"}))
    assert answer.result is not None
    assert dict(answer.result.labels) == {"team": "蓝"}


@pytest.mark.parametrize("way", WAYS)
async def test_fields_of_a_newer_client_still_reach_the_node(world: World, way: str) -> None:
    """Unknown fields are ignored here, and travel in the request's own bytes."""
    seen: list[bytes] = []
    engine = next(iter(world.agents[0].app._cares.values())).engine
    submit = engine.submit

    def submit_and_keep(items: Sequence[Item], *, atomic: bool) -> None:
        seen.extend(item.request.SerializeToString() for item in items)
        submit(items, atomic=atomic)

    engine.submit = submit_and_keep  # type: ignore[method-assign]
    later = inference_pb2.InferenceRequest.FromString(
        prompt(request_id="later").SerializeToString() + UNKNOWN_FIELD
    )
    assert (await world.ask(way, later)).error is None
    assert any(UNKNOWN_FIELD in data for data in seen)


UNKNOWN_FIELD = b"\x9a\xf1\x01\x05later"  # number 3859
