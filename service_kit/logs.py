"""How does a log line look, and how does it get out without stopping the loop?

One JSON object per line (or text on a terminal), to standard error, by a thread of its own, so that
a slow disk or pipe stops nothing. `event` is a stable name (`docs/logs.md`); prompts and outputs
are never logged. Repeats of warnings are counted, not told (`log_repeats.py`).
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
import sys
import threading
from datetime import UTC, datetime

from service_kit.log_repeats import WINDOW_S, Repeats

TRACE = 5
OURS = ("scheduler_service", "node_agent", "service_kit")  # others' libraries only warn
LEVELS = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
FIELDS = (
    "event", "node_id", "session_epoch", "engine_id", "request_id", "trace_id", "span_id", "tenant",
    "model", "attempt", "batch_id", "dispatch_id", "reason", "duration_ms", "address", "term",
    "cluster_id", "grace_ms", "signal", "count", "source", "pool", "client", "node", "admin",
    "http", "place", "method", "principal", "outcome", "suppressed", "dropped",
)  # fmt: skip
QUEUE_LINES = 10_000
MAX_LINE = 2000


class LineFormatter(logging.Formatter):
    """One record, one line of at most about 2 kB."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        message = record.getMessage()[:MAX_LINE]
        if not self._as_json:
            message = _on_one_line(message)
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if not record.name.startswith(OURS):
            fields = {"event": "library"} | fields
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        at = at.replace("+00:00", "Z")
        level = "trace" if record.levelno < logging.DEBUG else record.levelname.lower()
        if not self._as_json:
            tail = "".join(f" {name}={_short(value)}" for name, value in fields.items())
            return f"{at} {level:7} {message}{tail}"
        head = {"ts": at, "level": level, "logger": record.name, "msg": message}
        return json.dumps(head | fields, ensure_ascii=False, default=str)


class DroppingQueueHandler(logging.handlers.QueueHandler):
    """Drops lines rather than wait when the reader cannot keep up; the next one says how many."""

    _dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put the record in line, or drop it."""
        if self._dropped:
            record.dropped = self._dropped
        try:
            self.queue.put_nowait(record)
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Format here only what may change before the thread sees it."""
        record.msg = record.getMessage()
        record.args = None
        return record


class LineWriter(threading.Thread):
    """Writes lines to standard error; a daemon, so a reader that hangs does not stop an exit."""

    def __init__(
        self,
        lines: queue.Queue[logging.LogRecord | None],
        *,
        as_json: bool,
        repeats: Repeats | None = None,
    ) -> None:
        super().__init__(name="log writer", daemon=True)
        self._lines = lines
        self._repeats = repeats or Repeats()
        self._target = logging.StreamHandler(sys.stderr)
        self._target.setFormatter(LineFormatter(as_json=as_json))

    def run(self) -> None:
        """Write until the end mark comes; what was suppressed is told in between."""
        while True:
            try:
                record = self._lines.get(timeout=WINDOW_S)
            except queue.Empty:
                record = None
            else:
                if record is None:
                    return
                self._target.handle(record)
            if record is None or self._lines.empty():
                for line in self._repeats.overdue():
                    self._target.handle(line)

    def stop(self, timeout_s: float = 1.0) -> None:
        """Write what is left, but take no longer than this."""
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self.join(timeout_s)


def set_up(*, form: str, level: str) -> LineWriter:
    """Send all logs of this process to standard error. Stop the writer to flush."""
    logging.addLevelName(TRACE, "TRACE")
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    lines: queue.Queue[logging.LogRecord | None] = queue.Queue(QUEUE_LINES)
    root = logging.getLogger()
    repeats = Repeats()
    handler = DroppingQueueHandler(lines)
    handler.addFilter(repeats)
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_level(level)
    writer = LineWriter(lines, as_json=as_json, repeats=repeats)
    writer.start()
    return writer


def set_level(level: str, logger: str = "") -> None:
    """Set the level of one logger, or (empty) of all of ours.

    Raises:
        KeyError: there is no such level.
    """
    for name in (logger,) if logger else OURS:
        logging.getLogger(name).setLevel(LEVELS[level])


def _on_one_line(message: str) -> str:
    """What others named may hold line ends, to look like lines of their own, or move a terminal."""
    if message.isprintable():
        return message
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    return "".join(escaped)


def _short(value: object) -> str:
    text = str(value)
    text = text if len(text) <= 200 else f"{text[:200]}..."
    if text.isprintable() and " " not in text:
        return text
    return _on_one_line(json.dumps(text, ensure_ascii=False))
