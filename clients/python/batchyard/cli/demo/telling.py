"""What is said at the end: some answers, the checklist, the report, and where the files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from batchyard.cli.columns import printable
from batchyard.cli.demo.calls import Call
from batchyard.cli.demo.checks import Check, continued_in_mid_stream
from batchyard.cli.demo.evidence import Evidence
from batchyard.cli.demo.play import PEAK
from batchyard.cli.demo.traces import spans_of
from batchyard.cli.views.plain import Document

if TYPE_CHECKING:
    from rich.console import RenderableType

REPORT, TRACE, ANSWERS = "report.json", "trace.json", "answers.json"
SEAM: Final = "‖"
_SHOWN_PROMPT: Final = 60  # characters
_RESULT_KEYS: Final = (
    "model", "finish_reason", "partial", "degraded", "degrade_reason", "node_id", "trace_id",
    "usage", "timings", "attempts",
)  # fmt: skip


def answers_part(evidence: Evidence) -> RenderableType:
    """One answer of each task type, and one that two nodes wrote."""
    lines: list[Text] = [_heading("Some answers (a model this small is quick rather than wise)")]
    for call in _one_per_task_type(evidence.calls):
        lines += _answer_lines(call, call.result.text if call.result else "")
    continued = [call for call in evidence.moved() if continued_in_mid_stream(call)]
    if continued:
        call = max(continued, key=lambda call: len(call.pieces[0][1]))
        lines.append(_heading(f"One answer of two nodes ({SEAM} is where the first was killed)"))
        lines += _answer_lines(call, SEAM.join(text for _, text in call.pieces))
    return Group(*lines)


def _one_per_task_type(calls: list[Call]) -> Iterator[Call]:
    told: set[str] = set()
    for call in calls:
        result, wish = call.result, call.wish
        if call.act == PEAK and result and not result.degraded and wish.task_type not in told:
            told.add(wish.task_type)
            yield call


def _answer_lines(call: Call, answer: str) -> list[Text]:
    prompt = call.wish.prompt
    short = prompt if len(prompt) <= _SHOWN_PROMPT else prompt[: _SHOWN_PROMPT - 1] + "…"
    return [
        Text(f"  {call.wish.task_type}, priority {call.wish.priority}: {printable(short)}"),
        Text(f"    → {printable(answer.strip())}", style="dim"),
    ]


def checks_part(checks: list[Check]) -> RenderableType:
    """The checklist: each promise, and below it what proves it."""
    lines: list[RenderableType] = [_heading("Checklist")]
    for check in checks:
        mark, style = ("✓", "green") if check.held else ("✗", "red")
        lines.append(Text("  ").append(mark, style=style).append(f" {check.name}"))
        words = Text(printable(check.evidence), style="dim")
        lines.append(Padding(words, (0, 0, 0, 6), expand=False))
    return Group(*lines)


def files_part(folder: Path, evidence: Evidence) -> RenderableType:
    """Where the files are, and how to open them."""
    spans = list(spans_of(evidence.trace))
    traces = len({span["traceId"] for _, span in spans})
    look = (
        f"{len(spans)} spans in {traces} traces, as OTLP JSON. To look at them: "
        "docker compose -f deploy/compose.yaml up -d jaeger, then open http://localhost:16686, "
        f"choose Upload and give it {folder / TRACE}"
    )
    rows = [
        (REPORT, "the report, as `batchyard report -o json` prints it"),
        (TRACE, look),
        (ANSWERS, "every request with its answer, its waits and its attempts"),
    ]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(f"  {folder / name}"), Text(text))
    return Group(_heading("Files"), grid)


def verdict(checks: list[Check], took_s: float) -> str:
    """The last line."""
    failed = sum(not check.held for check in checks)
    if failed:
        return f"{failed} of {len(checks)} promises did not hold (after {took_s:.0f} s)."
    return f"All {len(checks)} promises held, in {took_s:.0f} s."


def summary(checks: list[Check], folder: Path, took_s: float) -> Document:
    """What `-o json` prints."""
    return {
        "held": all(check.held for check in checks),
        "took_s": round(took_s, 1),
        "checks": [
            {"name": check.name, "held": check.held, "evidence": check.evidence} for check in checks
        ],
        "files": {
            name.removesuffix(".json"): str(folder / name) for name in (REPORT, TRACE, ANSWERS)
        },
    }


def answers_document(evidence: Evidence) -> list[Document]:
    """Every request of the demo, in the order of sending."""
    return [_answer_document(call) for call in evidence.calls]


def _answer_document(call: Call) -> Document:
    from batchyard.cli.views.plain import plain

    result, error = call.result, call.error
    document: Document = {
        "request_id": call.request_id,
        "act": call.act,
        "task_type": call.wish.task_type,
        "priority": call.wish.priority,
        "prompt": call.wish.prompt,
        "took_ms": round(call.took_s * 1000, 1),
        "error": None if error is None else {"reason": error.reason, "message": error.message},
    }
    if result is not None:
        whole = plain(result.proto)
        document |= {"answer": result.text, "pieces": [text for _, text in call.pieces]}
        document |= {key: whole[key] for key in _RESULT_KEYS}
    return document


def _heading(words: str) -> Any:
    return Text(f"\n{words}", style="bold")
