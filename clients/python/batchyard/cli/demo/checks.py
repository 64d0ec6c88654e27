"""The checklist: each promise of the demo, whether it held, and what proves it. Pure.

A promise that could not be looked at has not held.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from batchyard.cli.demo.calls import Call
from batchyard.cli.demo.evidence import Evidence
from batchyard.cli.demo.peak import MAX_TOKENS
from batchyard.cli.demo.play import MEASURE, gain_text
from batchyard.cli.demo.stage import BACKUP, PRIMARIES, SUBSTITUTE
from batchyard.cli.demo.traces import SERVICE

AT_ONCE_S = 0.1
# Tokens that an engine may not have told at the end: those of a character that is not whole.
WITHHELD = 3
SERVICES = (SERVICE, "batchyard-scheduler", "batchyard-agent")
_BANDS = ((8, 10), (4, 7), (1, 3))
# What the report must count zero of.
_NONE_OF = ("failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist."""

    name: str
    held: bool
    evidence: str


def checklist(evidence: Evidence) -> list[Check]:
    """Every promise, in the order of the story."""
    return [_check(name, look, evidence) for name, look in _PROMISES.items()]


def _check(name: str, look: Callable[[Evidence], tuple[bool, str]], evidence: Evidence) -> Check:
    held, text = look(evidence)
    return Check(name, held, text)


def _peak(evidence: Evidence) -> list[Call]:
    return [call for call in evidence.calls if call.act != MEASURE and call.queue_s is not None]


def _run_at_once(evidence: Evidence) -> tuple[bool, str]:
    calls = _peak(evidence)
    at_once = [call for call in calls if (call.queue_s or 0) <= AT_ONCE_S]
    text = (
        f"{len(at_once)} of {len(calls)} in the peak were sent on within {AT_ONCE_S * 1000:.0f} ms"
    )
    return bool(at_once), text


def _wait(evidence: Evidence) -> tuple[bool, str]:
    calls = [call for call in _peak(evidence) if (call.queue_s or 0) > AT_ONCE_S]
    if not calls:
        return False, "none waited"
    longest = max(call.queue_s or 0 for call in calls)
    medians = " · ".join(_median_waits(_peak(evidence)))
    return True, f"{len(calls)} waited, at most {longest:.1f} s; median wait {medians}"


def _median_waits(calls: list[Call]) -> Iterator[str]:
    for low, high in _BANDS:
        waits = [call.queue_s or 0 for call in calls if low <= call.wish.priority <= high]
        if waits:
            yield f"{statistics.median(waits):.1f} s at priority {high}..{low}"


def _share_a_batch(evidence: Evidence) -> tuple[bool, str]:
    batches = evidence.named("dispatch_batch")
    shared = [len(batch["items"]) for batch in batches if len(batch["items"]) > 1]
    outcome = evidence.outcome
    if not shared or not outcome.together_s:
        return (
            False,
            f"{len(shared)} of {len(batches)} batches held more than one; no gain measured",
        )
    sizes = [call.result.timings.batch_size for call in outcome.together if call.result]
    text = (
        f"{len(shared)} of {len(batches)} batches held 2 to {max(shared)} requests. "
        f"Gain on {PRIMARIES[0]}: {gain_text(outcome)}"
    )
    return max(sizes, default=0) > 1, text


def _degraded(evidence: Evidence) -> tuple[bool, str]:
    events = evidence.named("degraded")
    found = [c for c in evidence.calls if c.result is not None and c.result.degraded]
    for call in found:
        result = call.result
        assert result is not None
        if result.model == SUBSTITUTE and result.degrade_reason == "max_wait" and events:
            return True, (
                f"a {call.wish.task_type} of priority {call.wish.priority} was to wait "
                f"{call.wish.max_wait_s:g} s at most; then {SUBSTITUTE} answered "
                "(made-up text: it stands in for a smaller model)"
            )
    return False, f"{len(found)} requests, {len(events)} events"


def _refused(evidence: Evidence) -> tuple[bool, str]:
    events = {event.get("request_id", "") for event in evidence.named("rejected")}
    for call in evidence.calls:
        error = call.error
        if error is None or error.reason != "DEADLINE_UNREACHABLE":
            continue
        wait_ms = error.metadata.get("estimatedWaitMs")
        text = f"after {call.took_s * 1000:.0f} ms with {error.reason}: {error.message}"
        return wait_ms is not None and call.request_id in events, text
    return False, "nothing was refused"


def _scaled_out(evidence: Evidence) -> tuple[bool, str]:
    steps, joined = evidence.named("scale_out"), _newcomers(evidence)
    if not steps or not joined:
        return False, f"{len(steps)} steps out, {len(joined)} new nodes"
    answered = sum(
        call.result is not None and call.result.node_id in joined for call in evidence.calls
    )
    who = " and ".join(joined)  # more than one where the machine is slow and the peak lasts
    return True, f"{steps[0]['message']}; {who} joined and answered {answered} requests"


def _newcomers(evidence: Evidence) -> list[str]:
    joined = {str(event["node_id"]) for event in evidence.named("node_joined")}
    return sorted(joined - {*PRIMARIES, BACKUP})


def _failed_over(evidence: Evidence) -> tuple[bool, str]:
    killed, moved = evidence.outcome.killed, evidence.moved()
    lost = [event for event in evidence.named("node_lost") if event["node_id"] == killed]
    ids = {call.request_id for call in moved}
    moves = [event for event in evidence.named("failover") if event["request_id"] in ids]
    on_backup = [call for call in moved if _ended_on(call) == BACKUP]
    continued = [call for call in moved if continued_in_mid_stream(call)]
    held = bool(killed and lost and on_backup and continued) and len(moves) >= len(moved)
    held = held and all(is_complete(call) for call in moved)
    if not continued:
        return (
            held,
            f"{killed or 'no node'} killed, {len(moved)} requests moved, none in mid-stream",
        )
    return held, (
        f"SIGKILL of {killed}: {len(moved)} requests moved, {len(on_backup)} of them to {BACKUP}; "
        f"{len(continued)} went on in mid-stream, as {_attempts_text(continued[0])}"
    )


def _ended_on(call: Call) -> str:
    return call.result.node_id if call.result is not None else ""


def continued_in_mid_stream(call: Call) -> bool:
    """Whether its client got text of two attempts, which make up one answer."""
    return len({attempt for attempt, _ in call.pieces}) > 1


def is_complete(call: Call) -> bool:
    """Whether the answer is whole: the pieces are the text, and it ended where it should."""
    result = call.result
    if result is None or result.partial or "".join(text for _, text in call.pieces) != result.text:
        return False
    if result.finish_reason == "length":
        return MAX_TOKENS - WITHHELD <= (result.usage.output_tokens or 0) <= MAX_TOKENS
    return result.finish_reason == "stop"


def _attempts_text(call: Call) -> str:
    assert call.result is not None
    return ", then ".join(
        f"attempt {a.number} on {a.node_id} {a.state} {a.error}".rstrip()
        for a in call.result.attempts
    )


def _answered_once(evidence: Evidence) -> tuple[bool, str]:
    accepted = [call for call in evidence.calls if call.accepted]
    answered = [call for call in accepted if call.result is not None and is_complete(call)]
    successes = Counter(
        item["request_id"]
        for batch in evidence.named("batch_finished")
        for item in batch["items"]
        if item["status"] in ("stop", "length", "complete")
    )
    ids = {call.request_id for call in accepted}
    once = len(ids) == len(accepted) and dict(successes) == dict.fromkeys(ids, 1)
    text = (
        f"{len(evidence.calls)} sent, {len(accepted)} accepted, {len(answered)} answered; "
        f"{sum(successes.values())} attempts succeeded for {len(successes)} requests"
    )
    held = bool(accepted) and len(answered) == len(accepted) and once and _books_agree(evidence)
    return held, text


def _books_agree(evidence: Evidence) -> bool:
    """Whether the scheduler counted what the client counted."""
    if evidence.report is None:
        return False
    totals = evidence.report["totals"]
    accepted = sum(call.accepted for call in evidence.calls)
    return (
        totals["received"] == len(evidence.calls)
        and totals["succeeded"] == accepted
        and totals["rejected"] == len(evidence.calls) - accepted
        and not any(totals[key] for key in _NONE_OF)
    )


def _one_trace(evidence: Evidence) -> tuple[bool, str]:
    """The trace of a request that moved has spans of all three kinds of process."""
    for call in evidence.moved():
        assert call.result is not None
        spans = evidence.traced(call.result.trace_id)
        count = Counter(service for service, _ in spans)
        names = {span["name"] for _, span in spans}
        if all(count[s] for s in SERVICES) and {"attempt 1", "attempt 2"} <= names:
            parts = ", ".join(f"{count[service]} of {service}" for service in SERVICES)
            return True, f"trace {call.result.trace_id} of a request that moved: spans {parts}"
    return False, "no trace of a request that moved is whole"


_PROMISES: dict[str, Callable[[Evidence], tuple[bool, str]]] = {
    "some run at once": _run_at_once,
    "some wait": _wait,
    "some share a batch": _share_a_batch,
    "one is degraded": _degraded,
    "one is refused early": _refused,
    "a scale-out starts a node": _scaled_out,
    "work of a killed node goes on": _failed_over,
    "each accepted is answered once": _answered_once,
    "one trace tells it all": _one_trace,
}
