"""The demo's checklist: it holds for a sound demo, and each promise can be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchyard import errors
from batchyard.cli.demo.checks import checklist
from batchyard.cli.demo.evidence import Evidence
from batchyard.cli.demo.peak import LATE, MAX_TOKENS, MEASURED, ROUND_SIZE, WAVE
from batchyard.cli.demo.play import Outcome
from batchyard.cli.demo.stage import REAL, SIMULATED
from tests.integration.demo.evidence_of_a_demo import KILLED, call_named, proto_of, sound


def failed(evidence: Evidence) -> list[str]:
    """The names of the promises that did not hold."""
    return [check.name for check in checklist(evidence) if not check.held]


def without(evidence: Evidence, event: str) -> None:
    evidence.events = [e for e in evidence.events if e["event"] != event]


def every_wait(evidence: Evidence, queue_ms: int) -> None:
    for call in evidence.calls:
        if call.result is not None:
            proto_of(call).timings.queue_duration.FromMilliseconds(queue_ms)


def answer_twice(evidence: Evidence) -> None:
    finished = next(e for e in evidence.events if e["event"] == "batch_finished")
    finished["items"].append({"request_id": "peak-01", "status": "stop"})


def lose_an_answer(evidence: Evidence) -> None:
    call = call_named(evidence, "peak-02")
    call.result, call.error = None, errors.AttemptsExhausted(reason="ATTEMPTS_EXHAUSTED")


def cut_an_answer(evidence: Evidence) -> None:
    proto_of(call_named(evidence, "peak-01")).usage.output_tokens = MAX_TOKENS // 2


def repeat_a_piece(evidence: Evidence) -> None:
    call_named(evidence, "peak-04").pieces = [(1, "an "), (2, "an answer")]


def count_more_than_were_sent(evidence: Evidence) -> None:
    assert evidence.report is not None
    evidence.report["totals"]["received"] += 1


def forget_the_agents_spans(evidence: Evidence) -> None:
    del evidence.trace["resourceSpans"][-1]


def answer_where_it_was_killed(evidence: Evidence) -> None:
    proto_of(call_named(evidence, "peak-04")).node_id = KILLED


def share_nothing(evidence: Evidence) -> None:
    sent = next(e for e in evidence.events if e["event"] == "dispatch_batch")
    del sent["items"][1:]


def substitute_for_another_reason(evidence: Evidence) -> None:
    proto_of(call_named(evidence, "peak-03")).degrade_reason = "no_capacity"


def refuse_without_an_estimate(evidence: Evidence) -> None:
    error = call_named(evidence, "peak-05").error
    assert error is not None
    error.metadata.clear()


ONCE = "each accepted is answered once"
MOVES = "work of a killed node goes on"
TRACED = "one trace tells it all"
BREAKS: list[tuple[Callable[[Evidence], None], list[str]]] = [
    (lambda e: every_wait(e, 500), ["some run at once"]),
    (lambda e: every_wait(e, 5), ["some wait"]),
    (share_nothing, ["some share a batch"]),
    (lambda e: setattr(e.outcome, "together_s", 0.0), ["some share a batch"]),
    (substitute_for_another_reason, ["one is degraded"]),
    (lambda e: without(e, "degraded"), ["one is degraded"]),
    (refuse_without_an_estimate, ["one is refused early"]),
    (lambda e: without(e, "rejected"), ["one is refused early"]),
    (lambda e: without(e, "scale_out"), ["a scale-out starts a node"]),
    (lambda e: without(e, "node_joined"), ["a scale-out starts a node"]),
    (lambda e: without(e, "node_lost"), [MOVES]),
    (lambda e: without(e, "failover"), [MOVES]),
    (answer_where_it_was_killed, [MOVES, TRACED]),
    (repeat_a_piece, [MOVES, ONCE]),
    (lose_an_answer, [ONCE]),
    (answer_twice, [ONCE]),
    (cut_an_answer, [ONCE]),
    (count_more_than_were_sent, [ONCE]),
    (lambda e: setattr(e, "report", None), [ONCE]),
    (forget_the_agents_spans, [TRACED]),
]


def test_every_promise_holds_for_a_sound_demo() -> None:
    checks = checklist(sound())
    assert [check.name for check in checks if not check.held] == []
    assert len(checks) == 9
    assert all(check.evidence for check in checks)


@pytest.mark.parametrize(("broken", "names"), BREAKS)
def test_promise_that_is_broken_does_not_hold(
    broken: Callable[[Evidence], None], names: list[str]
) -> None:
    evidence = sound()
    broken(evidence)
    assert failed(evidence) == names


def test_no_promise_holds_where_nothing_happened() -> None:
    assert len(failed(Evidence(calls=[], outcome=Outcome()))) == 9


@pytest.mark.parametrize("pace", [REAL, SIMULATED])
def test_demo_makes_at_most_forty_requests_of_four_task_types_and_all_priorities(
    pace: object,
) -> None:
    rounds = REAL.rounds if pace is REAL else SIMULATED.rounds
    measured = rounds * 2 * ROUND_SIZE
    assert measured <= len(MEASURED)
    assert measured + len(WAVE) + len(LATE) + 2 <= 40  # and one degraded, one refused
    assert len({wish.task_type for wish in WAVE}) == 4
    assert {wish.priority for wish in WAVE + LATE} == set(range(1, 11))
    assert sum(not wish.prompt.isascii() for wish in WAVE) >= 4
