"""How lengths of time are written: "2s", "500ms", "1m30s", a timedelta, or seconds as a number."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache

from google.protobuf.duration_pb2 import Duration as ProtoDuration

from batchyard.errors import InvalidRequest

__all__ = ["Duration", "parse_duration", "write_duration"]

Duration = str | float | timedelta

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")
# The longest that google.protobuf.Duration holds: about 10,000 years.
_SECONDS_MAX = 315_576_000_000


@lru_cache(maxsize=1024, typed=True)  # most calls of a program share a few
def parse_duration(value: Duration, field: str) -> float:
    """The length in seconds; InvalidRequest naming `field` where it is none.

    >>> parse_duration("1m30s", "timeout")
    90.0
    >>> parse_duration("500ms", "max_wait")
    0.5
    """
    given: object = value  # whatever the annotation says
    if isinstance(given, str):
        seconds = _parse_text(given, field)
    elif isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    else:
        raise _refusal(f"a {type(value).__name__} is no duration", field)
    if not math.isfinite(seconds) or seconds < 0 or seconds > _SECONDS_MAX:
        raise _refusal(f"{value!r} is not between 0 and 10,000 years", field)
    return seconds


def write_duration(target: ProtoDuration, seconds: float) -> None:
    """Sets `target` to `seconds`, to the nanosecond, also where it is zero."""
    whole, fraction = divmod(round(seconds * 1_000_000_000), 1_000_000_000)
    target.seconds = whole
    target.nanos = fraction


def _parse_text(text: str, field: str) -> float:
    compact = text.replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise _refusal(f"{text!r} is no duration", field)
    return math.fsum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _refusal(problem: str, field: str) -> InvalidRequest:
    return InvalidRequest(
        f'{problem}; write "2s", "500ms", "1m30s", a timedelta, or seconds as a number',
        reason="INVALID_ARGUMENT",
        field=field,
    )
