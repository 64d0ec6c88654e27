"""What the checks look at: calls, events, the report, the trace. Gathered once, at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchyard.cli.demo.calls import Call
from batchyard.cli.demo.play import Outcome
from batchyard.cli.demo.traces import spans_of
from batchyard.cli.views.plain import Document

if TYPE_CHECKING:
    from batchyard import AsyncAdmin

EVENTS_MAX = 1000


@dataclass(slots=True, kw_only=True)
class Evidence:
    """All that the promises are held against."""

    calls: list[Call]
    outcome: Outcome
    events: list[Document] = field(default_factory=list)  # oldest first
    report: Document | None = None  # as `batchyard report` has it; None: not to be had
    trace: Document = field(default_factory=lambda: {"resourceSpans": []})

    def named(self, event: str) -> list[Document]:
        """The events of that name."""
        return [e for e in self.events if e["event"] == event]

    def traced(self, trace_id: str) -> list[tuple[str, Document]]:
        """The spans of one trace, each with its service."""
        return [(s, span) for s, span in spans_of(self.trace) if span["traceId"] == trace_id]

    def moved(self) -> list[Call]:
        """Calls that ran on the killed node and were answered by another one."""
        killed = self.outcome.killed
        return [
            call
            for call in self.calls
            if call.result is not None
            and len(call.result.attempts) > 1
            and any(attempt.node_id == killed for attempt in call.result.attempts[:-1])
            and call.result.node_id != killed
        ]


async def gather(admin: AsyncAdmin, calls: Iterable[Call], outcome: Outcome) -> Evidence:
    """Ask the scheduler for its report and all of its events; without them if it does not say."""
    from batchyard import BatchyardError
    from batchyard.cli.views.events import event_document
    from batchyard.cli.views.report import report_document

    evidence = Evidence(calls=list(calls), outcome=outcome)
    try:
        evidence.report = report_document(await admin.report(max_events=EVENTS_MAX))
        found = [event_document(e) async for e in admin.events(page_size=EVENTS_MAX)]
        evidence.events = found[::-1]
    except BatchyardError as error:
        outcome.problems.append(f"the scheduler's report: {error}")
    return evidence
