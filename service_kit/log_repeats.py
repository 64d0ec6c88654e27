"""What if the same warning comes a thousand times a second? A few are told, and then how many more.

Alike are warnings and worse of the same logger with the same text before its arguments are filled
in (and of the same `place`, where they name one). Of those `LINES_MAX` pass in each `WINDOW_S`; the
next one that passes has `suppressed`, the number of those that did not, and where none comes a line
of its own says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20
WINDOW_S: Final = 10.0
KEYS_MAX: Final = 1_000  # texts that are told apart; the rest counts as one

_Key = tuple[str, int, str, str]  # logger, level, text, place


class _Window:
    """Of one text."""

    __slots__ = ("began_s", "passed", "suppressed")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.passed = 0
        self.suppressed = 0  # since one passed


class Repeats(logging.Filter):
    """Lets the first few of those alike pass. Called in whichever thread logs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[_Key, _Window] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is told."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        with self._lock:
            window = self._window(_key(record), now)
            if now - window.began_s >= WINDOW_S:
                window.began_s, window.passed = now, 0
            if window.passed >= LINES_MAX:
                window.suppressed += 1
                return False
            window.passed += 1
            if window.suppressed:
                record.suppressed, window.suppressed = window.suppressed, 0
        return True

    def _window(self, key: _Key, now: float) -> _Window:
        windows = self._windows
        if key not in windows and len(windows) >= KEYS_MAX:
            key = ("", logging.WARNING, "", "")
        window = windows.get(key)
        if window is None:
            window = windows[key] = _Window(now)
        return window

    def overdue(self) -> list[logging.LogRecord]:
        """Lines about repeats that nothing followed; texts that are quiet are forgotten."""
        now, told = self._clock(), []
        with self._lock:
            for key, window in list(self._windows.items()):
                if now - window.began_s < WINDOW_S:
                    continue
                del self._windows[key]
                if window.suppressed:
                    told.append(_line(key, window.suppressed))
        return told


def _key(record: logging.LogRecord) -> _Key:
    return record.name, record.levelno, str(record.msg), str(getattr(record, "place", ""))


def _line(key: _Key, suppressed: int) -> logging.LogRecord:
    name, level, text, _ = key
    made = logging.LogRecord(name, level, "", 0, "repeated: %s", (text,), None)
    made.event, made.suppressed = "log_repeated", suppressed
    return made
