"""The one result of a request, as the scheduler accounts for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import AttemptState, EngineMode, Outcome, Reason
from scheduler_service.core.relay import Output
from scheduler_service.core.types import (
    SECOND,
    Attempt,
    Batch,
    Engine,
    EngineSpec,
    Node,
    NodeSpec,
    Request,
)
from scheduler_service.rpc import status
from scheduler_service.rpc.results import MAX_ATTEMPTS_SHOWN, ResultBuilder, failed
from tests.unit.scheduler.small_world import EPOCH_NS, HandClock

NOW = 1_000 * SECOND
STOP = types_pb2.FINISH_REASON_STOP


def request(attempts: int = 1) -> Request:
    made = Request(1, "r1", "asked", 5, NOW)
    made.served_model = "served"
    made.finished_at = NOW + 3 * SECOND
    made.queue_time = SECOND + 5
    made.first_dispatch_at = NOW + SECOND
    for number in range(1, attempts + 1):
        add_attempt(made, number)
    return made


def add_attempt(made: Request, number: int) -> Attempt:
    node = Node(f"n{number}", "boot", 1, NodeSpec(()), 0, 0)
    engine = Engine(node, EngineSpec("e1", EngineMode.CONTINUOUS, 8), {})
    batch = Batch(f"b{number}", engine, "served", False, "credit", NOW)
    attempt = Attempt(100 + number, number, made, engine, "served", batch, 1, NOW + SECOND)
    batch.attempts.extend([attempt, attempt])
    made.attempts = (*made.attempts, attempt)
    return attempt


def build(
    made: Request, outcome: Outcome = Outcome.SUCCEEDED, *, first_output_at: int = 0, **fields: Any
) -> inference_pb2.InferenceResult:
    command = FinishRequest(made, outcome, **fields)
    built = ResultBuilder(HandClock()).build(
        command, first_output_at=first_output_at, trace_id=fields.get("trace_id", "")
    )
    return inference_pb2.InferenceResult.FromString(built.SerializeToString())


def measured(**fields: Any) -> bytes:
    return types_pb2.EngineTimings(**fields).SerializeToString()


def payload(**fields: Any) -> wire_pb2.PackedItemResult:
    fields.setdefault("finish_reason", STOP)
    return wire_pb2.PackedItemResult(**fields)


def test_success_says_who_answered_when_and_with_what_use() -> None:
    made = request()
    attempt = made.attempts[0]
    attempt.state, attempt.ended_at = AttemptState.SUCCEEDED, NOW + 2 * SECOND
    attempt.output_tokens, attempt.output_id = 8, 55
    node = payload(usage={"input_tokens": 3, "output_tokens": 8}, timings=measured(batch_size=2))
    result = build(made, payload=node, attempt=attempt, first_output_at=NOW + SECOND + 1)
    assert (result.request_id, result.model, result.node_id) == ("r1", "served", "n1")
    assert result.finish_reason == STOP
    assert not result.HasField("error")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (3, 8)
    assert not result.partial
    (shown,) = result.attempts
    assert (shown.number, shown.dispatch_id, shown.engine_id) == (1, 101, "e1")
    assert (shown.batch_id, shown.batch_size, shown.output_id) == ("b1", 2, 55)
    assert shown.state == types_pb2.ATTEMPT_STATE_SUCCEEDED
    assert shown.start_time.ToNanoseconds() == EPOCH_NS + NOW + SECOND
    assert shown.end_time.ToNanoseconds() == EPOCH_NS + NOW + 2 * SECOND
    assert shown.output_tokens == 8
    times = result.timings
    assert times.receive_time.ToNanoseconds() == EPOCH_NS + NOW
    assert times.dispatch_time.ToNanoseconds() == EPOCH_NS + NOW + SECOND
    assert times.first_token_time.ToNanoseconds() == EPOCH_NS + NOW + SECOND + 1
    assert times.finish_time.ToNanoseconds() == EPOCH_NS + NOW + 3 * SECOND
    assert times.queue_duration.ToNanoseconds() == SECOND + 5
    assert times.engine.batch_size == 2


def test_what_did_not_happen_is_absent() -> None:
    made = request(attempts=0)
    made.first_dispatch_at = 0
    result = build(made, Outcome.REJECTED, reason=Reason.QUEUE_FULL, message="full")
    assert result.node_id == ""
    assert not result.attempts
    assert not result.HasField("usage")
    assert not result.timings.HasField("dispatch_time")
    assert not result.timings.HasField("first_token_time")
    assert not result.timings.HasField("engine")


@pytest.mark.parametrize(
    ("outcome", "finish"),
    [
        (Outcome.FAILED, types_pb2.FINISH_REASON_ERROR),
        (Outcome.CANCELLED, types_pb2.FINISH_REASON_CANCELLED),
        (Outcome.EXPIRED, types_pb2.FINISH_REASON_EXPIRED),
        (Outcome.REJECTED, types_pb2.FINISH_REASON_REJECTED),
    ],
)
def test_every_other_outcome_has_its_reason_and_its_error(outcome: Outcome, finish: int) -> None:
    result = build(
        request(), outcome, reason=Reason.QUEUE_FULL, message="why", retry_after=SECOND,
        metadata={"queueDepth": "3"},
    )  # fmt: skip
    assert result.finish_reason == finish
    error = result.error
    assert (error.reason, error.message) == (types_pb2.ERROR_REASON_QUEUE_FULL, "why")
    assert (error.retry_after.seconds, error.retryable) == (1, True)
    assert dict(error.metadata) == {"queueDepth": "3"}


def test_field_that_the_node_named_is_passed_on() -> None:
    node = payload(error={"field": "request.params.n"})
    result = build(
        request(), Outcome.FAILED, reason=Reason.INVALID_ARGUMENT, message="no", payload=node
    )
    assert result.error.field == "request.params.n"


def test_substitute_and_preemptions_are_told() -> None:
    made = request()
    made.degrade_reason, made.preemptions = "overload", 2
    result = build(made, payload=payload())
    assert (result.degraded, result.degrade_reason, result.preemptions) == (True, "overload", 2)


def test_failed_attempts_say_why_and_the_last_ones_are_shown() -> None:
    made = request(attempts=MAX_ATTEMPTS_SHOWN + 5)
    made.attempts[-2].reason, made.attempts[-2].message = Reason.NODE_LOST, "it is gone"
    result = build(made, payload=payload())
    assert [a.number for a in result.attempts] == list(range(6, MAX_ATTEMPTS_SHOWN + 6))
    assert result.attempts[-2].error.reason == types_pb2.ERROR_REASON_NODE_LOST
    assert not result.attempts[-1].HasField("error")
    assert result.node_id == made.attempts[-1].node.node_id


def test_tokens_of_thrown_away_attempts_are_wasted_not_used() -> None:
    made = request(attempts=2)
    made.attempts[0].output_tokens = 7
    result = build(made, payload=payload(usage={"output_tokens": 9}), attempt=made.attempts[1])
    assert (result.usage.output_tokens, result.usage.wasted_output_tokens) == (9, 7)


def test_delivered_tokens_count_over_all_attempts() -> None:
    made = request(attempts=2)
    made.attempts[0].output_tokens = 7
    made.output = Output(55, None)
    made.output.tokens, made.output.offsets[0] = 16, 100
    result = build(made, payload=payload(usage={"output_tokens": 9}), attempt=made.attempts[1])
    assert (result.usage.output_tokens, result.usage.wasted_output_tokens) == (16, 0)
    assert result.output_id == 55


def test_sums_of_tokens_that_no_result_holds_are_cut_down() -> None:
    most = (1 << 32) - 1
    made = request(attempts=2)
    for attempt in made.attempts:
        attempt.output_tokens = most + 1
    made.output = Output(55, None)
    made.output.tokens = 2 * most
    result = build(made, payload=payload(), attempt=made.attempts[-1])
    assert result.usage.output_tokens == most
    assert [attempt.output_tokens for attempt in result.attempts] == [most] * 2
    made.output = None
    alone = build(made, payload=payload(), attempt=made.attempts[-1])
    assert alone.usage.wasted_output_tokens == most


def test_call_that_never_reached_the_core_has_a_result_too() -> None:
    kinds = {
        Reason.CANCELLED_BY_CLIENT: types_pb2.FINISH_REASON_CANCELLED,
        Reason.INTERNAL: types_pb2.FINISH_REASON_ERROR,
        Reason.INVALID_ARGUMENT: types_pb2.FINISH_REASON_REJECTED,
    }
    for reason, finish in kinds.items():
        data = failed(status.error(reason, "why"), "r9")
        result = inference_pb2.InferenceResult.FromString(data)
        assert (result.request_id, result.finish_reason) == ("r9", finish)
        assert result.error.reason == int(reason)


def answered(rid: int) -> FinishRequest:
    """One of several that share a batch, or do not, and differ in what may differ."""
    made = request()
    (attempt,) = made.attempts
    made.request_id, attempt.dispatch_id = f"r{rid}", (1 << 40) + rid
    made.received_at += rid // 2
    made.queue_time += rid // 3
    attempt.state, attempt.ended_at = AttemptState.SUCCEEDED, NOW + 2 * SECOND + rid // 4
    attempt.output_tokens = rid % 3
    node = payload(
        finish_reason=types_pb2.FINISH_REASON_LENGTH if rid % 5 == 0 else STOP,
        outputs=[inference_pb2.Output(text="x" * rid * 50).SerializeToString()] * (rid % 4),
    )
    if rid % 2:
        node.usage.input_tokens = 3
        node.timings = measured(batch_size=rid)
    return FinishRequest(made, Outcome.SUCCEEDED, attempt=attempt, payload=node)


def test_plain_results_say_what_the_builder_would_have_said() -> None:
    plain, builder = ResultBuilder(HandClock()), ResultBuilder(HandClock())
    shared = answered(0).request.attempts[0].batch
    for rid in range(1, 60):
        command = answered(rid)
        if rid % 7 > 2:
            command.request.attempts[0].batch = shared
        built = builder.build(command, first_output_at=0, trace_id="")
        built.outputs.extend(command.payload.outputs)
        expected = inference_pb2.InferenceResult.FromString(built.SerializeToString())
        assert inference_pb2.InferenceResult.FromString(plain.plain(command, "")) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda command: setattr(command, "outcome", Outcome.FAILED),
        lambda command: setattr(command, "payload", None),
        lambda command: add_attempt(command.request, 2),
        lambda command: setattr(command.request, "output", Output(1, None)),
        lambda command: setattr(command.request.attempts[0], "output_id", 7),
        lambda command: setattr(command.request.attempts[0], "state", AttemptState.RUNNING),
        lambda command: setattr(command.request, "degrade_reason", "overload"),
        lambda command: setattr(command.request, "preemptions", 1),
    ],
)
def test_result_that_has_more_to_say_is_not_plain(change: Callable[[FinishRequest], None]) -> None:
    command = answered(1)
    assert ResultBuilder(HandClock()).plain(command, "")
    change(command)
    assert not ResultBuilder(HandClock()).plain(command, "")


def test_traced_result_is_not_plain() -> None:
    assert not ResultBuilder(HandClock()).plain(answered(1), "ab" * 16)
