"""Who hears what becomes of jobs? Events of their beginning, cancel and end, each told once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from scheduler_service.core import records
from scheduler_service.core.types import Instant
from scheduler_service.jobs.kept import StoredJob

REMEMBERED: Final = 10_000  # ends that are not told again


class Note(Protocol):
    """`EventLog.note`."""

    def __call__(self, kind: str, at: Instant, *, tenant: str, data: dict[str, Any]) -> None:
        """Keep an event."""
        ...


@dataclass(slots=True)
class Teller:
    """Tells."""

    note: Note
    now: Callable[[], Instant]
    _ended: dict[int, None] = field(default_factory=dict)  # keys of jobs whose end was told

    def created(self, job: StoredJob) -> None:
        """All of its input is stored."""
        self._tell(records.JOB_CREATED, job)

    def cancelled(self, job: StoredJob, reason: str) -> None:
        """Somebody asked for its end."""
        self._tell(records.JOB_CANCELLED, job, reason=reason)

    def finished(self, job: StoredJob) -> None:
        """Its state is terminal. Told again, it says nothing."""
        if job.key in self._ended:
            return
        self._ended[job.key] = None
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._tell(
            records.JOB_FINISHED,
            job,
            state=job.state.name.lower(),
            succeeded=job.succeeded,
            failed=job.failed,
            cancelled=job.cancelled,
            expired=job.expired,
        )

    def _tell(self, kind: str, job: StoredJob, **more: Any) -> None:
        data = {"job_id": job.job_id, "items": job.total, **more}
        self.note(kind, self.now(), tenant=job.tenant, data=data)
