"""An explanation as a document, and as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batchyard.cli.columns import clock, printable
from batchyard.cli.durations import format_ms
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import admin_service_pb2 as admin

SHOWN_MAX: Final = 8  # candidates of one decision; JSON has all


@dataclass(frozen=True, slots=True)
class _Words:
    estimate: str = "estimated start: in {wait}"
    bound: str = "at the latest after {bound} dispatches of the pool"
    first: str = "{ahead} go first: {why}"
    forgotten: str = "(the oldest decisions are no longer remembered)"
    chosen: str = "chosen"
    expected: str = "expected end in {score}"
    more: str = "... and {number} more"


_LANGUAGES: Final = {
    "en": _Words(),
    "zh": _Words(
        "预计 {wait} 后开始",
        "最迟在该池再分派 {bound} 次之后",
        "前面有 {ahead} 个：{why}",
        "（最早的决定已不再保留）",
        "选中",
        "预计 {score} 后完成",
        "……还有 {number} 个",
    ),
}


def explanation_document(response: admin.ExplainRequestResponse) -> Document:
    """All of it; pages are already joined."""
    document = plain(response)
    del document["next_page_token"]
    return document


def explanation_lines(document: Document, language: str) -> Iterator[str]:
    """For people: what it waits for, then each decision with its candidates."""
    words, request = _LANGUAGES[language], document["request"]
    state = request["finish_reason"] or request["state"]
    head = (request["request_id"], state, request["model"], f"priority {request['priority']}")
    yield printable("  ".join(head))
    if document["wait"] is not None:
        yield from _waits(document["wait"], words)
    if document["incomplete"]:
        yield words.forgotten
    for decision in document["decisions"]:
        when, kind = clock(decision["decide_time"]), decision["kind"]
        text = f"{when}  {kind:<9} {decision['outcome']}"
        yield printable(f"{text}  {decision['reason']}" if decision["reason"] else text)
        yield from _candidates(decision["candidates"], words)


def _waits(wait: Document, words: _Words) -> Iterator[str]:
    yield printable(wait["text"])
    if wait["ahead"] and wait["ahead_reason"]:
        yield "  " + words.first.format(ahead=wait["ahead"], why=wait["ahead_reason"])
    if wait["estimated_start_ms"] is not None:
        yield "  " + words.estimate.format(wait=format_ms(wait["estimated_start_ms"]))
    if wait["start_bound"] is not None:
        yield "  " + words.bound.format(bound=wait["start_bound"])
    yield from _candidates(wait["nodes"], words)


def _candidates(candidates: list[Document], words: _Words) -> Iterator[str]:
    for each in candidates[:SHOWN_MAX]:
        says = [words.chosen] if each["chosen"] else []
        says += [each["filtered_by"]] if each["filtered_by"] else []
        if each["score"] is not None:
            says.append(words.expected.format(score=format_ms(each["score"] * 1000)))
        mark = "*" if each["chosen"] else "-"
        yield printable(f"    {mark} {each['node_id']}/{each['engine_id']}  {', '.join(says)}")
    if len(candidates) > SHOWN_MAX:
        yield "    " + words.more.format(number=len(candidates) - SHOWN_MAX)
