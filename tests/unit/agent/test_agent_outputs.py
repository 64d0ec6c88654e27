"""The output book: offsets, merging, cutting, going back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node_agent.core.outputs import OutputBook

TEXT = (0, 0)


def test_deltas_that_wait_merge_and_count_their_tokens() -> None:
    book = OutputBook()
    book.open(1, {})
    book.append(1, TEXT, "Hel", 1)
    book.append(1, TEXT, "lo", 1)
    (delta,) = book.take(256, 65536)
    assert (delta.offset, delta.text, delta.tokens) == (0, "Hello", 2)
    assert not book.any_unsent


def test_first_output_of_an_item_is_urgent_and_the_rest_is_not() -> None:
    book = OutputBook()
    book.open(1, {})
    book.append(1, TEXT, "a", 1)
    assert book.urgent
    book.take(10, 10)
    book.append(1, TEXT, "b", 1)
    assert not book.urgent


def test_a_code_point_is_never_cut_in_two() -> None:
    """Behaviour 95: characters of several bytes survive any cut."""
    book = OutputBook()
    book.open(1, {})
    book.append(1, TEXT, "a界😀", 0)
    assert [d.text for d in book.take(10, 3)] == ["a"]
    assert [d.text for d in book.take(10, 4)] == ["界"]
    assert [(d.offset, d.text) for d in book.take(10, 4)] == [(4, "😀")]


def test_going_back_into_a_code_point_goes_to_its_start() -> None:
    book = OutputBook()
    book.open(1, {})
    book.append(1, TEXT, "界", 0)
    book.take(10, 10)
    book.rewind(1, {TEXT: 2})
    assert [d.offset for d in book.take(10, 10)] == [0]


def test_rare_rows_know_their_place_and_are_sent_again_from_it() -> None:
    book = OutputBook()
    book.open(1, {})
    book.append_extra(1, (0, 16), "head")
    assert book.urgent
    assert book.has_unsent(1)
    book.append(1, (0, 16), "{}", 0)
    book.append_extra(1, (0, 16), "late")
    assert [(e.offset, e.payload) for e in book.take_extras(1)] == [(0, "head")]
    assert book.any_extras
    assert [(e.offset, e.payload) for e in book.take_extras(9)] == [(2, "late")]
    book.take(10, 10)
    assert not book.has_unsent(1)
    book.rewind(1, {(0, 16): 1})
    assert [e.payload for e in book.take_extras(9)] == ["late"]
    book.rewind(1, {})
    assert [e.payload for e in book.take_extras(9)] == ["head", "late"]
    book.drop(1)
    assert not book.any_unsent


def test_text_that_is_sent_again_counts_its_tokens_again() -> None:
    """Else who goes on with it elsewhere would take it for less than it is, and write too much."""
    book = OutputBook()
    book.open(1, {})
    for text in ("one ", "two ", "three "):
        book.append(1, TEXT, text, 1)
        book.take(256, 65536)
    book.append(1, TEXT, "four ", 1)  # not sent yet
    book.rewind(1, {TEXT: 4})  # a stream broke
    (delta,) = book.take(256, 65536)
    assert (delta.offset, delta.tokens) == (4, 3)
    book.rewind(1, {})  # another scheduler, which has nothing
    (delta,) = book.take(256, 65536)
    assert (delta.offset, delta.text, delta.tokens) == (0, "one two three four ", 4)
    book.append(1, TEXT, "five", 1)
    assert [each.tokens for each in book.take(256, 65536)] == [1]


def test_a_point_beyond_the_end_sends_nothing() -> None:
    book = OutputBook()
    book.open(1, {})
    book.append(1, TEXT, "abc", 0)
    book.rewind(1, {TEXT: 99})
    assert book.take(10, 10) == []


@given(
    pieces=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.text(max_size=9))),
    cuts=st.lists(st.tuples(st.integers(1, 4), st.integers(4, 12))),
)
def test_whatever_leaves_joins_to_what_came(
    pieces: list[tuple[int, int, str]], cuts: list[tuple[int, int]]
) -> None:
    """Offsets are dense, and each channel's deltas join to its text, however they were cut."""
    book = OutputBook()
    for dispatch_id in (1, 2, 3):
        book.open(dispatch_id, {TEXT: dispatch_id})
    whole: dict[tuple[int, int], str] = {}
    sent: dict[tuple[int, int], str] = {}

    def take(max_deltas: int, max_bytes: int) -> None:
        deltas = book.take(max_deltas, max_bytes)
        assert len(deltas) <= max_deltas
        assert sum(len(d.text.encode()) for d in deltas) <= max_bytes
        for delta in deltas:
            key = (delta.dispatch_id, delta.channel)
            start = delta.dispatch_id if delta.channel == 0 else 0
            assert delta.offset == start + len(sent.get(key, "").encode())
            sent[key] = sent.get(key, "") + delta.text

    remaining = iter(cuts)
    for dispatch_id, channel, text in pieces:
        book.append(dispatch_id, (0, channel), text, 1)
        whole[dispatch_id, channel] = whole.get((dispatch_id, channel), "") + text
        if (cut := next(remaining, None)) is not None:
            take(*cut)
    while book.any_unsent:
        take(2, 8)
    assert sent == {key: text for key, text in whole.items() if text}
