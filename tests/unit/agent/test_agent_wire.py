"""Items and results on the wire: bad ones, located; good ones, round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from batchyard.wire.v1 import wire_pb2 as wire
from node_agent.core import Agent, Held, Item, ItemState, Outcome, OutcomeKind
from node_agent.engine_care import EngineCare
from node_agent.engines.interface import EngineError, Load, Result
from node_agent.engines.registry import build_engine
from node_agent.rpc import convert, errors
from node_agent.rpc.report import report
from node_agent.rpc.results import is_complete, item_result

TRACE = f"00-{'ab' * 16}-{'cd' * 8}-"


def packed(item: node.DispatchItem, **batch: object) -> wire.PackedDispatchBatch:
    whole = node.DispatchBatch(engine_id="e", model="m", items=[item], **batch)  # type: ignore[arg-type]
    return wire.PackedDispatchBatch.FromString(whole.SerializeToString())


def one(item: node.DispatchItem, **batch: object) -> Item:
    return convert.batch_event(packed(item, **batch)).items[0]


def test_fields_of_the_item_win_over_those_of_the_request() -> None:
    request = inference.InferenceRequest(request_id="theirs", tenant="t", model="x", priority=3)
    item = one(
        node.DispatchItem(
            dispatch_id=9, attempt=2, request=request, request_id="ours", priority=8, stream=True
        )
    )
    assert (item.request_id, item.tenant, item.model) == ("ours", "t", "m")
    assert isinstance(item.payload, convert.Payload)
    assert (item.payload.item.model, item.payload.item.priority) == ("m", 8)
    assert item.payload.item.attempt == 2
    assert item.payload.item.stream


def test_absent_charge_and_deadline_mean_one_input_and_none() -> None:
    item = one(node.DispatchItem(dispatch_id=9))
    assert (item.inputs, item.tokens, item.remaining_ns) == (1, 0, None)


def test_output_of_a_continuation_starts_at_its_end_in_bytes() -> None:
    before = node.Continuation(text="né", reasoning="界")
    assert one(node.DispatchItem(dispatch_id=1, continuation=before)).starts == {
        (0, 0): 3,
        (0, 1): 3,
    }


@pytest.mark.parametrize(
    ("traceparent", "sampled"),
    [(TRACE + "01", True), (TRACE + "00", False), (TRACE + "03", True), (TRACE + "zz", False),
     ("", False), ("01", False)],
)  # fmt: skip
def test_only_a_sampled_trace_is_kept(traceparent: str, sampled: bool) -> None:
    trace = types.TraceContext(traceparent=traceparent)
    item = one(node.DispatchItem(dispatch_id=1, trace=trace), trace=trace)
    assert isinstance(item.payload, convert.Payload)
    assert (item.payload.trace is not None) == sampled
    assert item.payload.item.traceparent == (traceparent if sampled else "")


def test_parts_of_a_message_come_in_the_order_of_their_fields() -> None:
    message = node.ConnectResponse(
        results_acked=3,
        batches=[node.DispatchBatch(engine_id="e")],
        cancels=[node.Cancel(dispatch_ids=[1], reason=types.ERROR_REASON_PREEMPTED)],
        drain=node.Drain(terminate=True),
    )
    packed_message = wire.PackedConnectResponse.FromString(message.SerializeToString())
    found = convert.events(packed_message)
    assert [type(event).__name__ for event in found] == [
        "ResultsAcked",
        "BatchReceived",
        "CancelsReceived",
        "DrainRequested",
    ]


def test_an_unknown_cancel_reason_survives() -> None:
    message = node.ConnectResponse(cancels=[node.Cancel(dispatch_ids=[1], reason=999)])  # type: ignore[arg-type]
    found = convert.events(wire.PackedConnectResponse.FromString(message.SerializeToString()))
    assert found[0].reason == "UNKNOWN_999"  # type: ignore[union-attr]
    assert errors.reason_value("UNKNOWN_999") == 999


def test_an_item_cut_off_in_the_middle_keeps_its_id_and_charge() -> None:
    item = node.DispatchItem(
        dispatch_id=5, attempt=3, charge=node.Charge(inputs=4, tokens=70), cookie=b"c" * 40
    )
    batch = packed(item)
    batch.items[0] = batch.items[0][:-5]
    held = convert.batch_event(batch).items[0]
    assert (held.dispatch_id, held.attempt, held.inputs, held.tokens) == (5, 3, 4, 70)
    assert held.fault is not None
    assert "cookie" in held.fault.message or held.fault.field


@given(st.binary(max_size=200))
def test_any_bytes_can_be_an_item(data: bytes) -> None:
    """Behaviour of hostile input: nothing raises; what cannot be read has a fault."""
    batch = wire.PackedDispatchBatch(engine_id="e", items=[data])
    (item,) = convert.batch_event(batch).items
    assert (item.fault is None) == (item.payload is not None)


# Results.


def held(outcome: Outcome, **fields: object) -> Held:
    item = Item(dispatch_id=1, attempt=2)
    base: dict[str, object] = {
        "received_ns": 0, "submitted_ns": 10, "running_ns": 30, "first_output_ns": 70,
        "finished_ns": 170, "batch_size": 3, "state": ItemState.FINISHED,
    }  # fmt: skip
    return Held(item=item, engine_id="e", outcome=outcome, **{**base, **fields})  # type: ignore[arg-type]


def test_timings_are_the_engines_where_it_gave_them_else_our_own() -> None:
    result = Result(finish_reason=types.FINISH_REASON_STOP, decode_s=0.5)
    times = item_result(held(Outcome(OutcomeKind.ENGINE, result=result))).timings
    assert (times.local_queue.nanos, times.engine_queue.nanos, times.prefill.nanos) == (10, 20, 40)
    assert times.decode.nanos == 500_000_000
    assert (times.total.nanos, times.batch_size) == (170, 3)


def test_an_item_that_never_started_has_no_engine_phases() -> None:
    never = {"submitted_ns": None, "running_ns": None, "first_output_ns": None}
    outcome = Outcome(OutcomeKind.REFUSED, "ENGINE_BUSY", "full")
    message = item_result(held(outcome, **never))
    assert message.refused
    assert message.error.retryable
    assert message.finish_reason == types.FINISH_REASON_ERROR
    assert not message.timings.HasField("engine_queue")
    assert not message.HasField("usage")


def test_an_engines_error_keeps_its_reason_and_code() -> None:
    fault = EngineError(
        reason=types.ERROR_REASON_CONTEXT_TOO_LONG, message="long", metadata={"promptTokens": "9"}
    )
    result = Result(finish_reason=types.FINISH_REASON_ERROR, error=fault, input_tokens=9)
    message = item_result(held(Outcome(OutcomeKind.ENGINE, result=result)))
    assert message.error.reason == types.ERROR_REASON_CONTEXT_TOO_LONG
    assert message.error.code == 3
    assert not message.error.retryable
    assert message.error.metadata["promptTokens"] == "9"
    assert message.usage.partial
    assert not message.usage.HasField("output_tokens")  # unknown, not zero


def test_a_stop_that_nobody_asked_for_has_an_error() -> None:
    result = Result(finish_reason=types.FINISH_REASON_CANCELLED)
    assert not is_complete(result)
    message = item_result(held(Outcome(OutcomeKind.ENGINE, result=result)))
    assert message.error.reason == types.ERROR_REASON_ENGINE_ERROR


@pytest.mark.parametrize(
    "odd",
    [
        {"input_tokens": 2**70},
        {"output_tokens": "7"},
        {"prefill_s": float("inf")},
        {"outputs": [7]},
    ],
)
def test_answer_that_no_message_can_hold_is_the_engines_error(odd: dict[str, Any]) -> None:
    """Written into the session's message it must not cost the session, nor the agent."""
    result = Result(finish_reason=types.FINISH_REASON_STOP, **odd)
    message = item_result(held(Outcome(OutcomeKind.ENGINE, result=result)))
    assert (message.dispatch_id, message.attempt) == (1, 2)
    assert message.finish_reason == types.FINISH_REASON_ERROR
    assert message.error.reason == types.ERROR_REASON_ENGINE_ERROR
    assert not message.outputs


def test_load_that_no_message_can_hold_is_left_out() -> None:
    """The node's report goes on, with what the other engines say."""
    cares = {
        name: EngineCare(
            name, build_engine(engine_id=name, kind="simulated", options={"models": ["m"]})
        )
        for name in ("odd", "sound")
    }
    spoilt = cares["odd"].engine
    load = Load(health=node.ENGINE_HEALTH_SERVING, running=2**40)
    spoilt.load = lambda: load  # type: ignore[method-assign]
    core = Agent([care.spec for care in cares.values()])
    odd, sound = report(core, cares, None).engines
    assert (odd.engine_id, odd.HasField("running")) == ("odd", False)
    assert "cannot be sent" in odd.message
    assert (sound.engine_id, sound.HasField("running")) == ("sound", True)


def test_every_reason_that_an_agent_gives_has_a_code() -> None:
    for reason in errors.RETRYABLE:
        assert reason in errors.CODES
    assert errors.reason_value("NO_SUCH_REASON") == types.ERROR_REASON_INTERNAL
