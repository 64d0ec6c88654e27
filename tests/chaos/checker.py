"""Was every promise kept? Judges a history; pure, so that it can be shown to find faults.

Calls: invoked(prompt, tokens, timeout_s), then exactly one of ok(text, dispatch_ids),
failed(reason, partial) and unknown; between them cancel_sent and cancel_acknowledged.
heard(messages) is what a raw stream got, in order; again(text, replayed) the answer to the same
request id after ok.
Jobs: invoked(items), acknowledged, results(rows) at each look, cancelled(rows), ended(rows).
Nodes: seen(epoch, term). Gauges: start and end(**what is not zero). Logs: bad(line).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from node_agent.engines.simulated_text import check_text, is_seamless, nonce_of
from tests.chaos.history import Event
from tests.chaos.marked_text import mark_of

ENDS = ("ok", "failed", "unknown")
OUR_FAULTS = {"INTERNAL", "PROTOCOL_VIOLATION", "PROTOCOL_ERROR", "UNSPECIFIED"}


@dataclass
class Verdict:
    """`findings`: a sentence for each broken promise. `counts`: what there was."""

    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def check(events: Iterable[Event]) -> Verdict:
    """Judge a whole run."""
    verdict = Verdict()
    by_subject: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_subject[event.subject].append(event)
    owners: dict[int, str] = {}
    for subject, own in by_subject.items():
        judge = _JUDGES[subject.partition(" ")[0]]
        verdict.findings.extend(f"{subject}: {fault}" for fault in judge(own, verdict.counts))
        if subject.startswith("call "):
            verdict.findings.extend(_shared_attempts(subject, own, owners))
    return verdict


def _call(events: list[Event], counts: Counter[str]) -> Iterator[str]:
    invoked = events[0]
    ends = [event for event in events if event.kind in ENDS]
    counts["calls"] += 1
    if len(ends) != 1:
        yield f"has {len(ends)} ends: {[event.kind for event in ends]}"
        return
    end = ends[0]
    counts[end.kind] += 1
    same_life = invoked.life == end.life
    if end.kind == "ok":
        yield from _answer(invoked, end, same_life)
    elif end.kind == "failed":
        counts[f"failed {end.facts['reason']}"] += 1
        if end.facts["reason"] in OUR_FAULTS:
            yield f"failed with {end.facts['reason']}: {end.facts.get('message', '')}"
        yield from _text(end.facts["partial"], None)
        lasted_s = end.at_s - invoked.at_s
        if end.facts["reason"] == "DEADLINE_EXCEEDED" and lasted_s < invoked.facts["timeout_s"] - 1:
            yield f"ran out of time after {lasted_s:.1f} s of {invoked.facts['timeout_s']} s"
        cancelled = any(event.kind == "cancel_sent" for event in events)
        if end.facts["reason"] == "CANCELLED_BY_CLIENT" and not cancelled:
            yield "was cancelled, and nobody cancelled it"
    for event in events:
        if event.kind == "cancel_acknowledged" and end.kind == "ok" and event.life == end.life:
            yield "has a result after its cancel was acknowledged"
        elif event.kind == "heard":
            yield from _messages(event.facts["messages"])
        elif event.kind == "again":
            counts["asked again"] += 1
            if event.life == end.life and event.facts["text"] != end.facts["text"]:
                yield "has two answers: asked again, another text came"
            if event.life != end.life:
                yield from _text(event.facts["text"], invoked.facts["tokens"])


def _answer(invoked: Event, end: Event, same_life: bool) -> Iterator[str]:
    text = end.facts["text"]
    yield from _text(text, invoked.facts["tokens"])
    if not same_life:  # the attempts of an earlier scheduler are not listed
        return
    try:
        nonces = {nonce for nonce, _, _ in check_text(text)}
    except ValueError:
        return  # told by _text
    strange = nonces - {nonce_of(number) for number in end.facts["dispatch_ids"]}
    strange.discard(mark_of(invoked.facts["prompt"]))  # of an engine that knows no attempts
    if strange:
        yield f"has text of attempts that were not its own: {sorted(strange)}"


def _text(text: str, tokens: int | None) -> Iterator[str]:
    """Faults of a text that must be whole (`tokens`), or the beginning of one (None)."""
    try:
        if not is_seamless(text):
            yield f"repeats or lacks text: {check_text(text)}"
        elif tokens is not None and (not text or check_text(text)[-1][2] != tokens - 1):
            yield f"ends early or late: {check_text(text)[-1:]}, {tokens} tokens were asked for"
    except ValueError as fault:
        yield f"has wrong bytes: {fault}"


def _messages(messages: list[list[Any]]) -> Iterator[str]:
    """A raw stream: ["started", restarted], ["delta", offset, text], ["result"]."""
    end = 0
    results = 0
    for kind, *facts in messages:
        if results:
            yield f"gets {kind} after its result"
        if kind == "result":
            results += 1
        elif kind == "started" and facts[0]:
            end = 0
        elif kind == "delta":
            offset, text = facts
            if offset != end:
                yield f"gets output at {offset}, {end} was next"
            end = offset + len(text.encode())


def _shared_attempts(subject: str, events: list[Event], owners: dict[int, str]) -> Iterator[str]:
    for event in events:
        for number in event.facts.get("dispatch_ids", ()):
            owner = owners.setdefault(number, subject)
            if owner != subject:
                yield f"{subject}: has attempt {number}, which is one of {owner}"


def _job(events: list[Event], counts: Counter[str]) -> Iterator[str]:
    kinds = {event.kind: event for event in events}
    if "acknowledged" not in kinds:
        counts["jobs never acknowledged"] += 1
        return
    counts["jobs"] += 1
    items: int = events[0].facts["items"]
    counts["items"] += items
    told: dict[int, list[Any]] = {}
    for event in events:
        if event.kind not in ("results", "cancelled", "ended"):
            continue
        rows: list[list[Any]] = event.facts["rows"]
        now = {row[0]: row for row in rows}
        if len(now) != len(rows):
            twice = [index for index, n in Counter(row[0] for row in rows).items() if n > 1]
            yield f"has two results of items {twice}"
        changed = [index for index, row in told.items() if now.get(index) != row]
        if changed:
            yield f"has lost or changed results that were told: items {changed[:10]}"
        if "cancelled" in kinds and event.kind == "ended":
            late = set(now) - {row[0] for row in kinds["cancelled"].facts["rows"]}
            if late:
                yield f"has results after its cancel was complete: items {sorted(late)[:10]}"
        told = now
    if "ended" not in kinds:
        yield "was acknowledged and has no end"
        return
    yield from _items(items, told, "cancelled" in kinds, counts)


def _items(
    items: int, rows: dict[int, list[Any]], cancelled: bool, counts: Counter[str]
) -> Iterator[str]:
    lost = sorted(set(range(items)) - set(rows))
    if lost and not cancelled:
        counts["lost items"] += len(lost)
        yield f"has no result of items {lost[:10]}"
    for index, custom_id, reason, tokens, text, nodes in rows.values():
        if custom_id != f"c{index}":
            yield f"item {index} is called {custom_id!r}"
        counts[f"items {reason or 'ok'}"] += 1
        if reason in OUR_FAULTS:
            yield f"item {index} failed with {reason}"
        for fault in _text(text, None if reason else tokens):
            yield f"item {index} {fault}; its attempts: {nodes}"


def _node(events: list[Event], _counts: Counter[str]) -> Iterator[str]:
    last = 0
    for event in events:
        epoch, term = event.facts["epoch"], event.facts["term"]
        if epoch < last:
            yield f"went back from session {last} to {epoch}"
        if epoch >> 40 > term:
            yield f"has a session of term {epoch >> 40} while the term is {term}"
        last = max(last, epoch)


def _term(events: list[Event], _counts: Counter[str]) -> Iterator[str]:
    terms = [event.facts["term"] for event in events]
    if terms != sorted(set(terms)):
        yield f"did not grow with each start: {terms}"


def _left(events: list[Event], _counts: Counter[str]) -> Iterator[str]:
    for event in events:
        yield from (f"{name} is {value} at the {event.kind}" for name, value in event.facts.items())


def _bad(events: list[Event], _counts: Counter[str]) -> Iterator[str]:
    for event in events:
        yield str(event.facts["line"])


_JUDGES = {
    "call": _call,
    "job": _job,
    "node": _node,
    "term": _term,
    "gauges": _left,
    "logs": _bad,
}
