"""Which nodes had a session when the last scheduler of this cluster ended?

The next one waits for them before it dispatches anything (`core/adoption.py`): they may bring back
what they run. A drained one holds nothing, and may never come back. Written when a node joins, is
drained or is lost, which is rare; in one move, so that a crash leaves a whole file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scheduler_service.core import records
from scheduler_service.core.records import Record
from scheduler_service.core.types import SECOND, Duration, Instant
from scheduler_service.state_file import replace_document

log = logging.getLogger(__name__)

FILE: Final = "nodes.json"
MOST: Final = 10_000
AGAIN: Final[Duration] = 10 * SECOND  # after a write that failed, as on a full disk
_STAYS: Final = {
    records.NODE_JOINED: True,
    records.NODE_UNCORDONED: True,
    records.NODE_LOST: False,
    records.NODE_DRAINED: False,
}


class KnownNodes:
    """An observer of the core that keeps the file; `before` are those of the last scheduler."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self.before = self._read()
        self._now: dict[str, None] = {}
        self._again_at: Instant = 0  # the last write failed: try once more then

    def _read(self) -> frozenset[str]:
        try:
            nodes = json.loads(self._path.read_text(encoding="utf-8"))["nodes"]
            return frozenset(str(node) for node in nodes[:MOST])
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError) as fault:
            log.warning(
                "%s is damaged (%s): no node is waited for",
                self._path,
                fault,
                extra={"event": "state_damaged"},
            )
            return frozenset()

    def __call__(self, happened: Sequence[Record]) -> None:
        """Look at what the core decided."""
        changed = self._again_at != 0 and bool(happened) and happened[-1].at >= self._again_at
        for record in happened:
            stays = _STAYS.get(record.kind)
            if stays is None:
                continue
            if not stays:
                changed |= self._now.pop(record.node_id, self) is None
            elif record.node_id not in self._now:
                self._now[record.node_id] = None
                changed = True
        if changed:
            self._write(happened[-1].at)

    def _write(self, now: Instant) -> None:
        self._again_at = 0
        try:
            replace_document(self._path, {"nodes": list(self._now)[:MOST]})
        except OSError as fault:
            self._again_at = now + AGAIN
            log.warning(
                "%s cannot be written: %s", self._path, fault, extra={"event": "state_not_written"}
            )
