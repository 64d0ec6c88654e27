"""What happened, one line per event? The same seed gives the same bytes, in any process.

A line is the instant in seconds, the kind, and what is concerned; it is made of the core's records
and of the faults, so it says what was decided and not how the simulator came to hear of it. The
digest covers all lines, kept or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from scheduler_service.core.records import BATCH_FINISHED, DISPATCH_BATCH, FINISHED, SUBMIT, Record
from scheduler_service.core.types import SECOND, Instant
from simulator.watchers import Watcher

Sink = Callable[[str], object]


class EventLog(Watcher):
    """Writes lines to `sink`, if there is one, and keeps their digest and number."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.lines = 0
        self._sink = sink
        self._hash = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._hash.hexdigest()

    def on_recorded(self, now: Instant, records: Sequence[Record]) -> None:
        """One line each."""
        if records:
            self._write([_line(now, record) for record in records])

    def on_fault(self, now: Instant, what: str) -> None:
        """One line."""
        self._write([f"{_seconds(now)} fault {what}\n"])

    def _write(self, lines: list[str]) -> None:
        text = "".join(lines)
        self.lines += len(lines)
        self._hash.update(text.encode())
        if self._sink is not None:
            self._sink(text)


def _seconds(now: Instant) -> str:
    return f"{now // SECOND}.{now % SECOND:09}"


def _line(now: Instant, record: Record) -> str:
    parts = [_seconds(now), record.kind]
    request, kind = record.request, record.kind
    if request is not None:
        parts.append(request.request_id)
        if kind == SUBMIT:
            parts.append(f"{request.model} p{request.priority} {request.tenant or '-'}")
        elif kind == FINISHED and request.outcome is not None:
            parts.append(f"{request.outcome} {request.reason.name} {request.queue_time}")
    if record.node_id:
        parts.append(record.node_id)
    if record.pool:
        parts.append(record.pool)
    if record.attempt is not None:
        parts.append(f"a{record.attempt.number}")
    batch = record.batch
    if batch is not None and kind in (DISPATCH_BATCH, BATCH_FINISHED):
        members = ",".join(f"{a.request.request_id}.{a.number}" for a in batch.attempts)
        parts.append(f"{batch.batch_id} {batch.close_reason} {members}")
    if record.data:
        parts += [f"{name}={value}" for name, value in record.data.items()]
    return " ".join(parts) + "\n"
