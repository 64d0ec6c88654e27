"""Who did what to this scheduler, and why? One line of the log for each event with a principal.

Events are remembered in memory only; the log outlives the process. The lines are written whatever
the log's level is, so that nobody hides what they do by setting it.
"""

from __future__ import annotations

import logging
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.eventlog import Entry
from scheduler_service.report.events import EventWriter

LOGGER: Final = "scheduler_service.audit_log"
log = logging.getLogger(LOGGER)


class AuditLog:
    """Called with what a principal asked for."""

    def __init__(self, clock: Clock, term: int) -> None:
        self._writer = EventWriter(clock, term)
        log.setLevel(logging.INFO)

    def __call__(self, entry: Entry) -> None:
        """Write it down. What people gave as a reason is a field, and breaks no line."""
        event = self._writer.write(entry)
        fields = {
            "event": event.event,
            "principal": event.principal,
            "reason": event.reason,
            "node_id": event.node_id,
            "pool": event.pool,
        }
        given = {name: value for name, value in fields.items() if value}
        log.info("by %s: %s", event.principal, event.message, extra=given)
