"""Draw docs/lifecycles.md from the tables of moves in scheduler_service/core/transitions.py.

`--check` only says whether the document is what would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from scheduler_service.core import transitions
from scheduler_service.core.outcomes import (
    AttemptState,
    NodeAvailability,
    NodeHealth,
    RequestState,
)

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "lifecycles.md"

HEAD: Final = """\
# Life-cycles

Drawn from the tables in `scheduler_service/core/transitions.py` by `scripts/draw_transitions.py`; a
test fails when this page differs from them. One function per table makes each move; a move that is
not in its table raises InvariantViolation.
"""

# By enum and member: as numbers, members of different enums are equal.
MEANING: Final[dict[str, str]] = {
    "RequestState.QUEUED": "waits, or is held back until its next try is due; while the session of "
    "an attempt is broken, that attempt may still answer",
    "RequestState.DISPATCHED": "sent to at least one node",
    "RequestState.RUNNING": "an engine began it, or it has spoken",
    "RequestState.FINISHED": "has its outcome: succeeded, failed, cancelled, expired, rejected",
    "AttemptState.RUNNING": "sent; its output and result are wanted",
    "AttemptState.SUCCEEDED": "gave the answer",
    "AttemptState.FAILED": "the engine or the input was at fault; charged",
    "AttemptState.CANCELLED": "its request was cancelled or expired, or a drain took it back",
    "AttemptState.LOST": "its node went away; what it did there is unknown and fenced off; charged",
    "AttemptState.REFUSED": "never started; not charged",
    "AttemptState.PREEMPTED": "a job item made room for interactive work; not charged",
    "AttemptState.REVOKED": "another live attempt of its request spoke or answered first",
    "NodeHealth.STARTING": "no engine is healthy with an active model; gets no work",
    "NodeHealth.HEALTHY": "works",
    "NodeHealth.SUSPECT": "silent for 3 s, or its stream broke; no new work, its own is kept 2 s",
    "NodeHealth.PROBATION": "back after an ejection, on trial",
    "NodeHealth.EJECTED": "connected but failing; gets no work for a while",
    "NodeHealth.LOST": "fenced off, its work is run elsewhere; a return is a new session",
    "NodeAvailability.ACTIVE": "may work",
    "NodeAvailability.CORDONED": "finishes its work and gets no more, by an operator's word",
    "NodeAvailability.DRAINING": "finishes its work within a grace; the rest moves",
    "NodeAvailability.DRAINED": "holds nothing; the proof of its drain is complete",
}

CYCLES: Final[tuple[tuple[str, str, Mapping[Any, frozenset[Any]], IntEnum], ...]] = (
    ("A request", "From submission to its one outcome.", transitions.REQUEST, RequestState.QUEUED),
    ("An attempt", "One try on one engine.", transitions.ATTEMPT, AttemptState.RUNNING),
    (
        "A node's health",
        "Whether it can work. Silence and breaks are judged by the scheduler's clock alone.",
        transitions.HEALTH,
        NodeHealth.STARTING,
    ),
    (
        "A node's availability",
        "Whether operators let it work; independent of its health.",
        transitions.AVAILABILITY,
        NodeAvailability.ACTIVE,
    ),
)


def document() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, text, table, first in CYCLES:
        parts.append("\n".join([f"## {title}", "", text, "", *_diagram(table, first), ""]))
        parts.append("\n".join([*_meanings(table), ""]))
    return "\n".join(parts)


def _diagram(table: Mapping[Any, frozenset[Any]], first: IntEnum) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {first.name}"
    for state, moves in table.items():
        for move in sorted(moves):
            yield f"    {state.name} --> {move.name}"
        if not moves:
            yield f"    {state.name} --> [*]"
    yield "```"


def _meanings(table: Mapping[Any, frozenset[Any]]) -> Iterator[str]:
    yield "| state | meaning | may become |"
    yield "|---|---|---|"
    for state, moves in table.items():
        following = ", ".join(move.name for move in sorted(moves)) or "final"
        meaning = MEANING[f"{type(state).__name__}.{state.name}"]
        yield f"| {state.name} | {meaning} | {following} |"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is fresh; return the exit status."""
    if arguments == ["--check"]:
        if TARGET.read_text(encoding="utf-8") == document():
            return 0
        print("docs/lifecycles.md is stale: run scripts/draw_transitions.py", file=sys.stderr)
        return 1
    TARGET.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
