"""Offsets are dense: a repeat is cut, a gap is an error, a restart begins anew."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.errors import ProtocolError
from batchyard.output import OutputBuffer, read_deltas
from batchyard.v1 import DeltaExtra, InferenceResult, Output, Started, TokenDeltas, ToolCall


def add(buffer: OutputBuffer, offset: int, text: str, choice: int = 0, channel: int = 0) -> str:
    event = buffer.add((0, offset, text, choice, channel, 1, ()))
    return "" if event is None else event.text + event.reasoning + event.tool_arguments


def test_text_joins_by_bytes_not_characters() -> None:
    buffer = OutputBuffer()
    add(buffer, 0, "你")
    add(buffer, 3, "好😀")
    add(buffer, 10, "!")
    assert buffer.text() == "你好😀!"


def test_choices_and_channels_have_their_own_offsets() -> None:
    buffer = OutputBuffer()
    add(buffer, 0, "a", choice=0)
    add(buffer, 0, "b", choice=1)
    assert add(buffer, 0, "why", channel=1) == "why"
    assert add(buffer, 0, "{}", channel=17) == "{}"
    assert (buffer.text(0), buffer.text(1), buffer.text(0, 1)) == ("a", "b", "why")


def test_a_gap_is_an_error() -> None:
    buffer = OutputBuffer()
    add(buffer, 0, "abc")
    with pytest.raises(ProtocolError, match="output is missing"):
        add(buffer, 4, "d")


def test_overlap_is_cut_and_a_whole_repeat_gives_nothing() -> None:
    buffer = OutputBuffer()
    add(buffer, 0, "abc")
    assert add(buffer, 1, "bcde") == "de"
    assert add(buffer, 0, "ab") == ""
    assert buffer.text() == "abcde"


def test_overlap_inside_a_character_is_an_error() -> None:
    buffer = OutputBuffer()
    add(buffer, 0, "ab")
    with pytest.raises(ProtocolError, match="inside a character"):
        add(buffer, 1, "你")


def test_token_ids_alone_are_counted() -> None:
    buffer = OutputBuffer()
    buffer.add((0, 0, "", 0, 0, 2, (7, 8)))
    event = buffer.add((0, 1, "", 0, 0, 2, (8, 9)))
    assert event is not None
    assert event.token_ids == (9,)


@given(st.text(min_size=1), st.lists(st.integers(0, 400), max_size=8), st.data())
def test_any_replay_of_any_pieces_gives_the_text_once(
    text: str, cuts: list[int], data: st.DataObject
) -> None:
    """Behaviour 56: joined text equals the reference, whatever is sent again from where."""
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    buffer, shown = OutputBuffer(), ""
    for start, end in itertools.pairwise(edges):
        back = data.draw(st.integers(0, start))
        shown += add(buffer, len(text[:back].encode()), text[back:end])
    assert shown == text
    assert buffer.text() == text


def test_restart_clears_and_says_so() -> None:
    buffer = OutputBuffer()
    buffer.start(Started(output_id=1))
    add(buffer, 0, "old")
    assert buffer.start(Started(output_id=2, restarted=True))
    assert (buffer.text(), buffer.output_id) == ("", 2)
    add(buffer, 0, "new")
    assert buffer.text() == "new"


def test_failover_that_continues_keeps_the_text() -> None:
    buffer = OutputBuffer()
    buffer.start(Started(output_id=1, attempt=1))
    add(buffer, 0, "old")
    assert not buffer.start(Started(output_id=1, attempt=2))
    assert add(buffer, 3, "new") == "new"


def test_another_output_without_a_restart_is_an_error() -> None:
    buffer = OutputBuffer()
    buffer.start(Started(output_id=1))
    add(buffer, 0, "old")
    with pytest.raises(ProtocolError, match="without a restart"):
        buffer.start(Started(output_id=2))


def test_attach_point_names_output_and_ends() -> None:
    buffer = OutputBuffer()
    assert buffer.attach_point() is None
    buffer.start(Started(output_id=7))
    add(buffer, 0, "你")
    add(buffer, 0, "x", choice=1, channel=1)
    point = buffer.attach_point()
    assert point is not None
    assert point.output_id == 7
    assert {(o.choice_index, o.channel, o.offset) for o in point.offsets} == {(0, 0, 3), (1, 1, 1)}


def test_tool_calls_are_put_together() -> None:
    buffer = OutputBuffer()
    event = buffer.add_extra(DeltaExtra(channel=16, tool_call=ToolCall(id="c", name="f")))
    assert event.tool_call is not None
    assert event.tool_call.name == "f"
    add(buffer, 0, '{"a":', channel=16)
    add(buffer, 5, "1}", channel=16)
    result = buffer.result(InferenceResult(finish_reason=3))  # type: ignore[arg-type]
    assert [(c.name, c.arguments_json) for c in result.tool_calls] == [("f", '{"a":1}')]


def test_a_replayed_result_speaks_for_itself() -> None:
    result = OutputBuffer().result(InferenceResult(outputs=[Output(text="whole")]))
    assert result.text == "whole"


def test_absent_columns_mean_their_defaults() -> None:
    deltas = TokenDeltas(offsets=[0, 3], texts=["a", "b"])
    assert list(read_deltas(deltas)) == [(0, 0, "a", 0, 0, 0, ()), (1, 3, "b", 0, 0, 0, ())]


def test_token_ids_are_dealt_out_by_their_counts() -> None:
    deltas = TokenDeltas(offsets=[0, 2], token_id_counts=[2, 1], token_ids=[4, 5, 6])
    assert [delta[6] for delta in read_deltas(deltas)] == [(4, 5), (6,)]


@pytest.mark.parametrize(
    "columns",
    [{"texts": ["a"]}, {"channels": [0, 0, 0]}, {"token_ids": [1], "token_id_counts": [2, 0]}],
)
def test_ragged_columns_are_an_error(columns: dict[str, list[int]]) -> None:
    with pytest.raises(ProtocolError):
        list(read_deltas(TokenDeltas(offsets=[0, 1], **columns)))  # type: ignore[arg-type]


def replay(text: str, output_id: int) -> InferenceResult:
    """The result of a request that had ended before its caller was back."""
    return InferenceResult(output_id=output_id, replayed=True, outputs=[Output(text=text)])


def test_replay_brings_the_end_of_an_output_that_was_cut_off() -> None:
    """Behaviour 56: without it the caller would take half an answer for the whole."""
    buffer = OutputBuffer()
    buffer.start(Started(output_id=7))
    add(buffer, 0, "one ")
    (event,) = buffer.complete(replay("one two", 7))
    assert (event.text, event.offset) == ("two", 4)
    assert buffer.text() == "one two"
    assert buffer.complete(replay("one two", 7)) == []


def test_replay_of_another_output_is_a_restart() -> None:
    buffer = OutputBuffer()
    buffer.start(Started(output_id=7))
    add(buffer, 0, "one ")
    restart, event = buffer.complete(replay("uno due", 9))
    assert restart.restarted
    assert event.text == buffer.text() == "uno due"


@pytest.mark.parametrize("begun", [0, 7])
def test_replay_brings_all_of_an_output_of_which_nothing_had_arrived(begun: int) -> None:
    """A caller who reads the events would take nothing for the whole."""
    buffer = OutputBuffer()
    if begun:
        buffer.start(Started(output_id=begun))
    (event,) = buffer.complete(replay("one two", 7))
    assert (event.text, event.offset, event.restarted) == ("one two", 0, False)
    assert buffer.result(replay("one two", 7)).text == buffer.text() == "one two"


def test_stream_that_shares_a_request_without_a_stream_has_its_text_all_the_same() -> None:
    """Behaviour 85: its result brings all, and whoever prints the events must not print nothing."""
    buffer = OutputBuffer()
    buffer.start(Started(output_id=0))
    whole = InferenceResult(outputs=[Output(text="one two")])
    (event,) = buffer.complete(whole)
    assert (event.text, event.offset) == ("one two", 0)
    assert buffer.result(whole).text == "one two"


def test_result_of_a_stream_that_has_all_is_no_replay() -> None:
    buffer = OutputBuffer()
    buffer.start(Started(output_id=7))
    add(buffer, 0, "one")
    assert buffer.complete(InferenceResult(output_id=7, outputs=[Output(text="one")])) == []
