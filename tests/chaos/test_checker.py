"""The checker finds each kind of broken promise in a history that was doctored to have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_agent.engines.simulated_text import nonce_of, tokens
from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.marked_text import answer, split
from tests.chaos.plan import KINDS, draw
from tests.chaos.site import name_nodes

FIRST, SECOND = (1 << 40) + 1, (1 << 40) + 2


def _text(*parts: tuple[int, int, int]) -> str:
    """Of (dispatch id, first token, how many)."""
    return "".join(tokens(nonce_of(number), first, count) for number, first, count in parts)


WHOLE = _text((FIRST, 0, 2), (SECOND, 2, 2))
ROWS = [[0, "c0", "", 4, WHOLE, ["1 n1"]], [1, "c1", "", 4, WHOLE, ["1 n1"]]]


def _honest() -> History:
    """A run in which every kind of event occurs and every promise is kept."""
    history = History()
    note = history.note
    note("term", "seen", term=1)
    note("node n1", "seen", epoch=(1 << 40) + 1, term=1)
    note("call 1", "invoked", prompt="p", tokens=4, timeout_s=40)
    note("call 1", "ok", text=WHOLE, dispatch_ids=[FIRST, SECOND])
    note("call 1", "again", text=WHOLE, replayed=True)
    note("call 2", "invoked", prompt="p", tokens=4, timeout_s=40)
    note("call 2", "cancel_sent")
    note("call 2", "cancel_acknowledged")
    note("call 2", "failed", reason="CANCELLED_BY_CLIENT", partial=_text((9, 0, 2)))
    note("call 3", "invoked", prompt="p", tokens=4, timeout_s=40)
    messages = [["started", False], ["delta", 0, "0:aa"], ["delta", 4, "bbcc "], ["result"]]
    note("call 3", "heard", messages=messages)
    note("call 3", "unknown", reason="")
    for job in ("job a", "job b"):
        note(job, "invoked", items=2)
        note(job, "acknowledged")
        note(job, "results", rows=ROWS[:1])
    note("job a", "ended", rows=ROWS)
    note("job b", "cancelled", rows=ROWS[:1])
    note("job b", "ended", rows=ROWS[:1])
    note("gauges", "end")
    return history


def test_an_honest_history_passes_and_is_counted() -> None:
    verdict = check(_honest().events)
    assert verdict.findings == []
    counted = {"calls": 3, "ok": 1, "failed": 1, "unknown": 1, "jobs": 2, "items": 4}
    assert {name: verdict.counts[name] for name in counted} == counted


def test_text_that_the_prompt_decides_is_taken_for_that_prompt_only() -> None:
    honest, mixed = _honest(), _honest()
    _change("call 1", "ok", text=WHOLE[: len(WHOLE) // 2] + answer("p", 2, 2))(honest)
    _change("call 1", "ok", text=WHOLE[: len(WHOLE) // 2] + answer("of another", 2, 2))(mixed)
    _change("call 1", "again", text=honest.events[3].facts["text"])(honest)
    assert check(honest.events).findings == []
    assert any("not its own" in finding for finding in check(mixed.events).findings)


def test_an_engine_goes_on_where_the_output_in_its_prompt_ends() -> None:
    for prompt in ("call 3 of 1 ", "job 12.", "hello [[fail@1]]"):
        written = _text((FIRST, 0, 2)) + answer(prompt, 2, 1)
        assert split(prompt) == (prompt, 0)
        assert split(prompt + written) == (prompt, 3)


Doctor = Callable[[History], None]


def _add(subject: str, kind: str, **facts: Any) -> Doctor:
    return lambda history: history.note(subject, kind, **facts)


def _change(subject: str, kind: str, **facts: Any) -> Doctor:
    def doctor(history: History) -> None:
        for event in history.events:
            if (event.subject, event.kind) == (subject, kind):
                event.facts.update(facts)

    return doctor


def _remove(subject: str, kind: str) -> Doctor:
    def doctor(history: History) -> None:
        history.events = [e for e in history.events if (e.subject, e.kind) != (subject, kind)]

    return doctor


EVIL = WHOLE[:-1] + "EVIL"
BROKEN: list[tuple[Doctor, str]] = [
    (_remove("call 1", "ok"), "has 0 ends"),
    (_remove("call 2", "cancel_sent"), "nobody cancelled it"),
    (_add("call 2", "ok", text=WHOLE, dispatch_ids=[]), "has 2 ends"),
    (_change("call 1", "ok", text=EVIL), "wrong bytes"),
    (_change("call 1", "ok", text=_text((FIRST, 0, 2), (SECOND, 1, 3))), "repeats or lacks"),
    (_change("call 1", "ok", text=_text((FIRST, 0, 2), (SECOND, 3, 1))), "repeats or lacks"),
    (_change("call 1", "ok", text=_text((FIRST, 0, 3))), "ends early"),
    (_change("call 1", "ok", text=""), "ends early"),
    (_change("call 1", "ok", dispatch_ids=[FIRST]), "attempts that were not its own"),
    (_change("call 1", "again", text=_text((FIRST, 0, 4))), "two answers"),
    (_change("call 2", "failed", partial="1:aaaaaa "), "repeats or lacks"),
    (_change("call 2", "failed", reason="INTERNAL"), "failed with INTERNAL"),
    (_change("call 2", "failed", reason="DEADLINE_EXCEEDED"), "ran out of time after"),
    (_change("call 3", "heard", messages=[["result"], ["result"]]), "gets result after its result"),
    (_change("call 3", "heard", messages=[["delta", 0, "ab"], ["delta", 1, "b"]]), "2 was next"),
    (_change("job a", "ended", rows=ROWS[:1]), "no result of items [1]"),
    (_change("job a", "ended", rows=[*ROWS, ROWS[1]]), "two results of items [1]"),
    (_change("job a", "ended", rows=ROWS[1:]), "lost or changed results"),
    (_change("job a", "ended", rows=[["x", *ROWS[0][1:]], ROWS[1]]), "lost or changed results"),
    (_change("job a", "ended", rows=[ROWS[0], [1, "c0", *ROWS[1][2:]]]), "is called 'c0'"),
    (
        _change("job a", "ended", rows=[ROWS[0], [1, "c1", "", 4, EVIL, []]]),
        "item 1 has wrong bytes",
    ),
    (_change("job b", "ended", rows=ROWS), "after its cancel was complete"),
    (_remove("job a", "ended"), "has no end"),
    (_add("node n1", "seen", epoch=1 << 40, term=1), "went back"),
    (_add("node n1", "seen", epoch=2 << 40, term=1), "session of term 2"),
    (_add("term", "seen", term=1), "did not grow"),
    (_change("gauges", "end", running=1), "running is 1 at the end"),
    (_add("logs", "bad", line="Traceback"), "Traceback"),
]


@pytest.mark.parametrize(
    ("doctor", "told"), BROKEN, ids=[f"{n} {t}" for n, (_, t) in enumerate(BROKEN)]
)
def test_a_doctored_history_is_found_out(doctor: Doctor, told: str) -> None:
    history = _honest()
    doctor(history)
    findings = check(history.events).findings
    assert any(told in finding for finding in findings), findings


def test_an_answer_after_an_acknowledged_cancel_is_found() -> None:
    history = _honest()
    _remove("call 2", "failed")(history)
    history.note("call 2", "ok", text=_text((9, 0, 4)), dispatch_ids=[9])
    assert any("after its cancel" in finding for finding in check(history.events).findings)


def test_an_attempt_that_two_calls_claim_is_found() -> None:
    history = _honest()
    history.note("call 4", "invoked", prompt="p", tokens=4, timeout_s=40)
    history.note("call 4", "ok", text=WHOLE, dispatch_ids=[FIRST, SECOND])
    assert any("which is one of call 1" in finding for finding in check(history.events).findings)


def test_the_same_seed_draws_the_same_faults() -> None:
    groups = name_nodes(2, 1, 1)
    first, again, other = (draw(seed, 60, groups) for seed in (3, 3, 4))
    assert first == again != other
    assert {fault.name for fault in first} == {kind.name for kind in KINDS}
