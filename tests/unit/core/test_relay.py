"""The relay by itself: lanes, offsets, and the verdicts on deltas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.relay import GAP, STALE, Output, Relay


@pytest.fixture
def relay() -> Relay:
    """One output with one lane, number 7, that is alone."""
    relay = Relay()
    relay.open(7, Output(1, None), "attempt", sole=True)
    return relay


def test_new_text_is_let_through_and_counted(relay: Relay) -> None:
    output = relay.lanes[7].output
    assert not output.begun
    assert relay.accept(7, 0, 0, 0, 5, 2) == 0
    assert relay.accept(7, 0, 0, 5, 3, 1) == 0
    assert output.positions() == [(0, 0, 8)]
    assert output.tokens == 3
    assert output.begun


def test_known_text_is_trimmed_and_a_gap_is_refused(relay: Relay) -> None:
    relay.accept(7, 0, 0, 0, 5)
    assert relay.accept(7, 0, 0, 3, 4) == 2
    assert relay.accept(7, 0, 0, 0, 7) == 7
    assert relay.accept(7, 0, 0, 8, 1) == GAP
    assert relay.lanes[7].output.positions() == [(0, 0, 7)]


def test_choices_and_channels_have_offsets_of_their_own(relay: Relay) -> None:
    for choice, channel in [(0, 0), (0, 1), (3, 0), (3, 1039)]:
        assert relay.accept(7, choice, channel, 0, 4) == 0
    assert sorted(relay.lanes[7].output.positions()) == [
        (0, 0, 4), (0, 1, 4), (3, 0, 4), (3, 1039, 4),
    ]  # fmt: skip


def test_unknown_and_revoked_ids_are_stale_and_counted(relay: Relay) -> None:
    assert relay.accept(8, 0, 0, 0, 1) == STALE
    relay.revoke(7)
    relay.revoke(7)
    assert relay.accept(7, 0, 0, 0, 1) == STALE
    assert relay.stale == 2


def test_empty_delta_begins_nothing(relay: Relay) -> None:
    """A head without text is no output: the work may still be run elsewhere from the start."""
    assert relay.accept(7, 0, 0, 0, 0) == 0
    assert not relay.lanes[7].output.begun


def test_first_word_is_noted_once(relay: Relay) -> None:
    relay.accept(7, 0, 0, 0, 1)
    relay.accept(7, 0, 0, 1, 1)
    assert relay.fresh == [7]
    assert relay.lanes[7].spoke


def test_of_two_lanes_the_first_to_speak_holds_the_output(relay: Relay) -> None:
    output = relay.lanes[7].output
    relay.open(9, output, "twin", sole=False)
    assert relay.accept(9, 0, 0, 0, 2) == 0
    assert relay.accept(7, 0, 0, 0, 2) == STALE
    relay.revoke(9)
    assert output.speaker == 0


def test_lane_that_has_spoken_keeps_its_output_when_a_twin_is_opened(relay: Relay) -> None:
    relay.accept(7, 0, 0, 0, 2)
    relay.open(9, relay.lanes[7].output, "twin", sole=False)
    assert relay.accept(9, 0, 0, 0, 2) == STALE
    assert relay.accept(7, 0, 0, 2, 2) == 0


def test_revoking_a_silent_twin_leaves_the_speaker_alone(relay: Relay) -> None:
    output = relay.lanes[7].output
    relay.open(9, output, "twin", sole=False)
    relay.accept(7, 0, 0, 0, 2)
    relay.revoke(9)
    assert relay.accept(7, 0, 0, 2, 2) == 0


DELTAS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 6), st.integers(0, 4)),
    max_size=40,
)


@given(DELTAS)
def test_text_of_each_channel_is_whole_and_of_one_lane(
    deltas: list[tuple[int, int, int, int]],
) -> None:
    """Any deltas of three lanes: what gets through has no gap, no repeat and one voice."""
    relay, output = Relay(), Output(1, None)
    for lane in range(3):
        relay.open(lane + 1, output, lane, sole=lane == 0)
    texts: dict[int, str] = {0: "", 1: ""}
    for lane, channel, offset, length in deltas:
        known = relay.accept(lane + 1, 0, channel, offset, length)
        if known >= 0:
            assert offset <= len(texts[channel])
            texts[channel] += "abc"[lane] * (length - known)
            assert len(texts[channel]) == max(offset + length, len(texts[channel]))
    assert len(set("".join(texts.values()))) <= 1
    assert {c: e for _, c, e in output.positions()}.items() <= {
        c: len(t) for c, t in texts.items()
    }.items()
