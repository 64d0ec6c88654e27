"""The checker sees every splice, and says where a text is not whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.engines.simulated_text import check_text, is_seamless, nonce_of, tokens

IDS = st.integers(min_value=1, max_value=2**63)


@given(IDS, st.integers(0, 500), st.integers(1, 600))
def test_one_attempt_is_one_run(dispatch_id: int, first: int, count: int) -> None:
    nonce = nonce_of(dispatch_id)
    assert check_text(tokens(nonce, first, count)) == [(nonce, first, first + count - 1)]


@given(IDS, st.integers(1, 30), st.integers(0, 40), st.integers(1, 30))
def test_only_a_dense_continuation_is_seamless(
    dispatch_id: int, head: int, start: int, count: int
) -> None:
    text = tokens(nonce_of(dispatch_id), 0, head) + tokens(nonce_of(dispatch_id + 1), start, count)
    assert is_seamless(text) == (start == head)


@given(IDS, st.data())
def test_a_cut_inside_a_token_is_seen(dispatch_id: int, data: st.DataObject) -> None:
    text = tokens(nonce_of(dispatch_id), 0, 12)
    cut = data.draw(st.integers(1, len(text) - 1))
    if text[cut - 1] == " ":
        assert is_seamless(text[:cut])
    else:
        with pytest.raises(ValueError, match="no whole token"):
            check_text(text[:cut])


def test_ids_of_one_scheduler_have_their_own_nonces() -> None:
    term = 7 << 40
    nonces = {nonce_of(term + i, choice) for i in range(5000) for choice in range(2)}
    assert len(nonces) > 9990


def test_empty_text_has_no_run() -> None:
    assert check_text("") == []
    assert is_seamless("")
