"""What did clients ask, and what were they told? Written down as it happens, judged afterwards.

Subjects are "call N", "job ID", "node ID", "gauges" and "logs". What the kinds mean, and which
facts they carry, stands in `checker.py`.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """`at_s` is the time since the run's start; `life` counts the schedulers, from 0."""

    at_s: float
    life: int
    subject: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


class History:
    """Events in the order in which they were noted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.life = 0
        self._began = time.monotonic()

    def note(self, subject: str, kind: str, **facts: Any) -> None:
        at_s = round(time.monotonic() - self._began, 3)
        self.events.append(Event(at_s, self.life, subject, kind, facts))

    def write(self, path: Path) -> None:
        """One JSON object a line."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(event)) + "\n" for event in self.events)
