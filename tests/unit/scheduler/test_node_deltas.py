"""Rows of output, one by one: what is new, in which unit, and who may say it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.relay import Output, Relay
from scheduler_service.core.types import Request, Traits
from scheduler_service.rpc.convert_node import SessionRefused
from scheduler_service.rpc.node_deltas import DeltaGate

EPOCH = 7


class Sink:
    def __init__(self, *, omit_text: bool = False) -> None:
        options = inference_pb2.OutputOptions(token_ids=True, omit_text=omit_text)
        request = inference_pb2.InferenceRequest(model="m", output=options)
        self.request_bytes = request.SerializeToString()
        self.rows: list[tuple[int, int, int, str, int, list[int]]] = []
        self.extras: list[types_pb2.DeltaExtra] = []
        self.order: list[str] = []

    def deliver(
        self, choice: int, channel: int, offset: int, text: str, tokens: int, ids: Sequence[int]
    ) -> None:
        self.rows.append((choice, channel, offset, text, tokens, list(ids)))
        self.order.append("delta")

    def deliver_extra(self, extra: types_pb2.DeltaExtra) -> None:
        self.extras.append(extra)
        self.order.append("extra")


def attempt(epoch: int = EPOCH, **fields: Any) -> Any:
    """By default of a request for two choices."""
    engine = SimpleNamespace(node=SimpleNamespace(epoch=epoch))
    return SimpleNamespace(engine=engine, request=Request(1, "r1", "m", **{"inputs": 2, **fields}))


class Gate:
    """One session's gate over a relay of its own."""

    def __init__(self) -> None:
        self.relay = Relay()
        self.faults: list[str] = []
        self.gate = DeltaGate(EPOCH, lambda what, _error: self.faults.append(what))

    def open(
        self, dispatch_id: int = 1, *, omit_text: bool = False, sole: bool = True, **request: Any
    ) -> Sink:
        sink = Sink(omit_text=omit_text)
        self.relay.open(dispatch_id, Output(50, sink), attempt(**request), sole=sole)
        return sink

    def take(self, **columns: Any) -> list[int]:
        begun: list[int] = []
        self.gate.take(types_pb2.TokenDeltas(**columns), self.relay, begun)
        return begun


def test_absent_columns_have_their_default() -> None:
    gate = Gate()
    sink = gate.open()
    assert gate.take(ids=[1, 1], offsets=[0, 2], texts=["ab", "c"]) == [1]
    assert sink.rows == [(0, 0, 0, "ab", 0, []), (0, 0, 2, "c", 0, [])]


def test_choices_and_channels_have_offsets_of_their_own() -> None:
    gate = Gate()
    sink = gate.open()
    gate.take(
        ids=[1] * 4,
        offsets=[0, 0, 0, 2],
        texts=["a", "bb", "{}", "c"],
        token_counts=[1, 2, 3, 4],
        choice_indexes=[0, 1, 0, 1],
        channels=[0, 1, 1039, 1],
    )
    assert sink.rows == [
        (0, 0, 0, "a", 1, []), (1, 1, 0, "bb", 2, []), (0, 1039, 0, "{}", 3, []),
        (1, 1, 2, "c", 4, []),
    ]  # fmt: skip


def test_token_ids_belong_to_their_rows_even_behind_stale_ones() -> None:
    gate = Gate()
    sink = gate.open()
    gate.take(
        ids=[1, 99, 1], offsets=[0, 0, 1], texts=["a", "x", "b"],
        token_id_counts=[2, 1, 1], token_ids=[10, 11, 66, 12],
    )  # fmt: skip
    assert [row[5] for row in sink.rows] == [[10, 11], [12]]
    assert gate.relay.stale == 1


def test_offsets_count_ids_where_text_is_omitted() -> None:
    gate = Gate()
    sink = gate.open(omit_text=True)
    gate.take(ids=[1], offsets=[0], token_id_counts=[3], token_ids=[1, 2, 3])
    gate.take(ids=[1], offsets=[2], token_id_counts=[3], token_ids=[3, 4, 5])
    assert [(row[2], row[5]) for row in sink.rows] == [(0, [1, 2, 3]), (3, [4, 5])]


def test_offsets_count_bytes_where_a_token_has_no_text() -> None:
    """A special token, or one whose code point is not yet complete."""
    gate = Gate()
    sink = gate.open()
    gate.take(ids=[1], offsets=[0], texts=[""], token_id_counts=[1], token_ids=[5])
    gate.take(ids=[1], offsets=[0], texts=["é"], token_id_counts=[1], token_ids=[6])
    assert [(row[2], row[3], row[5]) for row in sink.rows] == [(0, "", [5]), (0, "é", [6])]


def test_repeated_row_without_text_is_dropped() -> None:
    gate = Gate()
    sink = gate.open()
    gate.take(ids=[1, 1], offsets=[0, 0], texts=["ab", ""], token_counts=[2, 1])
    assert len(sink.rows) == 1


def test_repeat_must_be_cut_between_code_points() -> None:
    gate = Gate()
    sink = gate.open()
    gate.take(ids=[1], offsets=[0], texts=["abcd"])
    with pytest.raises(SessionRefused, match="code point"):
        gate.take(ids=[1], offsets=[2], texts=["x中"])
    assert len(sink.rows) == 1
    assert gate.relay.lanes[1].output.positions() == [(0, 0, 4)]  # nothing counts as sent


def test_first_of_two_attempts_to_speak_silences_the_other() -> None:
    gate = Gate()
    output = Output(50, sink := Sink())
    gate.relay.open(1, output, attempt(), sole=True)
    gate.relay.open(2, output, attempt(), sole=False)
    assert gate.take(ids=[2, 1, 2], offsets=[0, 0, 1], texts=["a", "x", "b"]) == [2]
    assert [row[3] for row in sink.rows] == ["a", "b"]
    assert gate.relay.stale == 1


def test_what_came_before_a_gap_has_begun() -> None:
    gate = Gate()
    gate.open()
    begun: list[int] = []
    deltas = types_pb2.TokenDeltas(ids=[1, 1], offsets=[0, 5], texts=["a", "b"])
    with pytest.raises(SessionRefused, match="missing before offset 5"):
        gate.gate.take(deltas, gate.relay, begun)
    assert begun == [1]


def test_other_sessions_items_are_not_its_to_speak_for() -> None:
    gate = Gate()
    sink = Sink()
    gate.relay.open(1, Output(50, sink), attempt(epoch=6), sole=True)
    assert gate.take(ids=[1], offsets=[0], texts=["a"]) == []
    assert (sink.rows, gate.relay.stale) == ([], 1)


@pytest.mark.parametrize("channel", [2, 15, 1040, 1 << 31])
def test_channels_that_do_not_exist_are_refused(channel: int) -> None:
    gate = Gate()
    gate.open()
    with pytest.raises(SessionRefused) as refused:
        gate.take(ids=[1], offsets=[0], texts=["a"], channels=[channel])
    assert refused.value.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION


@pytest.mark.parametrize(("inputs", "choice"), [(1, 1), (1, 9999), (3, 3), (128, 1 << 31)])
def test_output_of_a_choice_that_was_not_asked_for_is_refused(inputs: int, choice: int) -> None:
    """And nothing of its message is delivered."""
    gate = Gate()
    sink = gate.open(inputs=inputs)
    logprobs = [types_pb2.TokenLogprob(token=b"a", logprob=-1)]
    extra = types_pb2.DeltaExtra(id=1, choice_index=choice, logprobs=logprobs)
    with pytest.raises(SessionRefused, match=f"choice {choice}; its request asked for") as row:
        gate.take(ids=[1, 1], offsets=[0, 0], texts=["a", "b"], choice_indexes=[0, choice])
    with pytest.raises(SessionRefused, match=f"choice {choice}; its request asked for") as rare:
        gate.take(extras=[extra])
    for refused, field in ((row, "deltas.choice_indexes"), (rare, "deltas.extras")):
        error = refused.value.error
        assert error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
        assert error.field == field
    assert (sink.rows, sink.extras) == ([], [])
    assert gate.relay.lanes[1].output.positions() == []
    last = inputs - 1
    gate.take(ids=[1], offsets=[0], texts=["a"], choice_indexes=[last])
    assert [row[0] for row in sink.rows] == [last]


@pytest.mark.parametrize(
    "request_",
    [
        {"inputs": 1, "traits": Traits(input_kind=inference_pb2.InferenceRequest.RAW_FIELD_NUMBER)},
        {"inputs": 1, "max_attempts": 0},  # adopted, and its caller is not back
    ],
)
def test_choices_that_only_the_body_knows_are_as_many_as_the_protocol_allows(
    request_: dict[str, Any],
) -> None:
    gate = Gate()
    sink = gate.open(**request_)
    gate.take(ids=[1], offsets=[0], texts=["a"], choice_indexes=[127])
    assert [row[0] for row in sink.rows] == [127]
    with pytest.raises(SessionRefused, match="choice 128"):
        gate.take(ids=[1], offsets=[0], texts=["a"], choice_indexes=[128])


def test_choices_of_items_that_are_not_its_own_are_dropped_like_the_rest_of_them() -> None:
    gate = Gate()
    gate.take(ids=[99], offsets=[0], texts=["a"], choice_indexes=[9999])
    assert gate.relay.stale == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"token_id_counts": [2], "token_ids": [1]},
        {"token_ids": [1]},
        {"ids": [1, 1]},
        {"extras": [types_pb2.DeltaExtra(id=1)] * 1025},
    ],
)
def test_other_lengths_that_disagree_are_refused(columns: dict[str, Any]) -> None:
    gate = Gate()
    sink = gate.open()
    with pytest.raises(SessionRefused):
        gate.take(**{"ids": [1], "offsets": [0], "texts": ["a"], **columns})
    assert sink.rows == []


# Extra rows.


def tool_call(channel: int = 16) -> types_pb2.DeltaExtra:
    call = types_pb2.ToolCall(id="c1", name="f", index=channel - 16)
    return types_pb2.DeltaExtra(id=1, channel=channel, tool_call=call)


def test_extra_row_comes_before_the_deltas_and_speaks() -> None:
    gate = Gate()
    sink = gate.open(sole=False)
    begun = gate.take(ids=[1], offsets=[0], texts=["{"], channels=[16], extras=[tool_call()])
    assert sink.order == ["extra", "delta"]
    assert begun == [1]


def test_extra_row_is_repeated_to_nobody() -> None:
    gate = Gate()
    sink = gate.open()
    logprobs = [types_pb2.TokenLogprob(token=b"a", logprob=-1)]
    extras = [tool_call(), types_pb2.DeltaExtra(id=1, offset=0, logprobs=logprobs)]
    message = {"ids": [1, 1], "offsets": [0, 0], "texts": ["a", "{"], "channels": [0, 16]}
    gate.take(**message, extras=extras)
    gate.take(**message, extras=extras)
    assert len(sink.extras) == 2
    later = types_pb2.DeltaExtra(id=1, offset=1, logprobs=logprobs)
    gate.take(ids=[1], offsets=[1], texts=["b"], extras=[later])
    assert len(sink.extras) == 3


def test_usage_alone_is_not_speech() -> None:
    gate = Gate()
    sink = gate.open(sole=False)
    usage = types_pb2.DeltaExtra(id=1, usage=types_pb2.Usage(input_tokens=9))
    assert gate.take(extras=[usage]) == []
    assert sink.extras == []
    gate.take(ids=[1], offsets=[0], texts=["a"])
    gate.take(extras=[usage])
    assert sink.extras == [usage]


def test_extra_row_of_a_dead_id_is_counted() -> None:
    gate = Gate()
    gate.take(extras=[tool_call()])
    assert gate.relay.stale == 1


def test_exception_of_a_sink_is_told_and_the_rest_goes_on() -> None:
    gate = Gate()
    broken, sound = gate.open(1), gate.open(2)
    broken.deliver = None  # type: ignore[assignment, method-assign]
    broken.deliver_extra = None  # type: ignore[assignment, method-assign]
    gate.take(ids=[1, 2], offsets=[0, 0], texts=["a", "b"], extras=[tool_call()])
    assert len(gate.faults) == 2
    assert [row[3] for row in sound.rows] == ["b"]
