"""Which requests have a line in the log? Those that end, up to so many a second.

An observer of the driver. Beyond the rate it does not even look at the records: how many it left
out is the difference of the totals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from scheduler_service.core import records
from scheduler_service.core.records import Record
from scheduler_service.core.state import Totals
from scheduler_service.core.types import MILLISECOND, SECOND, Instant, Request

log = logging.getLogger("scheduler_service.requests")

_FINISHED: Final = records.FINISHED


class RequestLog:
    """Writes at most `per_s` lines a second; 0: none."""

    def __init__(self, per_s: int, totals: Callable[[], Totals]) -> None:
        self._per_s = per_s
        self._totals = totals
        self._second: Instant = -1
        self._left = 0  # lines of this second
        self._ended = 0  # requests, when the last line was written

    def __call__(self, taken: Sequence[Record]) -> None:
        """Observe what the core recorded in a step."""
        if not taken:
            return
        second = taken[-1].at // SECOND
        if second != self._second:
            self._second = second
            self._left = self._per_s if log.isEnabledFor(logging.INFO) else 0
        if not self._left:
            return
        for record in taken:
            if record.kind is _FINISHED and record.request is not None:
                self._write(record.request)
                self._left -= 1
                if not self._left:
                    return

    def _write(self, request: Request) -> None:
        ended = sum(self._totals().outcomes.values())
        left_out, self._ended = max(0, ended - self._ended - 1), ended
        last = request.attempts[-1] if request.attempts else None
        fields = {
            "event": "request_finished",
            "request_id": request.request_id,
            "trace_id": request.trace_id,
            "tenant": request.tenant,
            "model": request.served_model or request.model,
            "node_id": last.node.node_id if last is not None else "",
            "attempt": len(request.attempts),
            "batch_id": last.batch.batch_id if last is not None else "",
            "outcome": str(request.outcome),
            "reason": request.reason.name if request.reason else "",
            "duration_ms": (request.finished_at - request.received_at) // MILLISECOND,
            "suppressed": left_out,
        }
        given = {name: value for name, value in fields.items() if value not in ("", 0)}
        log.info("request finished", extra=given)
