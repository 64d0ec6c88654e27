"""What does a task type imply, where a request does not say?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler_service.core.types import NEVER, Duration

ALIASES: Final = {
    "summary": "summarization",
    "qa": "question_answering",
    "code": "code_generation",
}

DEFAULT_PRIORITY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefaults:
    """Defaults of one task type; a request's own word always wins."""

    model: str = ""  # empty: the request must name one
    priority: int = DEFAULT_PRIORITY
    max_wait: Duration = NEVER
    timeout: Duration = NEVER
    degrade: tuple[str, ...] = ()
    output_tokens: int = 0  # expected; 0: unknown


@dataclass(frozen=True, slots=True)
class TaskTypes:
    """The configured task types. Unknown ones are taken as they are, with the plain defaults."""

    types: Mapping[str, TaskDefaults] = field(default_factory=dict)
    plain: TaskDefaults = field(default_factory=TaskDefaults)
    # By model: the smaller ones of its family, the next best first, with their quality.
    ladders: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)

    def resolve(self, name: str) -> tuple[str, TaskDefaults]:
        """The canonical name ("summary" is "summarization", "" is "other") and its defaults."""
        canonical = ALIASES.get(name, name) or "other"
        return canonical, self.types.get(canonical, self.plain)

    def rungs_below(self, model: str, min_quality: float) -> tuple[str, ...]:
        """The models of its ladder that may stand in for it, in order; empty: it has none."""
        rungs = self.ladders.get(model, ())
        return tuple(name for name, quality in rungs if quality >= min_quality)
