"""How long is "90s", "1m30s", "2h"? Lengths of time as users write them."""

from __future__ import annotations

import re
from typing import Final

from scheduler_service.core.types import MILLISECOND, SECOND, Duration
from simulator.workload.errors import TraceError

_UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h)")


def span(text: str) -> Duration:
    """Nanoseconds. "0" needs no unit.

    Raises:
        TraceError: it is no length of time.
    """
    if text == "0":
        return 0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise TraceError(f"{text!r} is no time: write a number and a unit, as 500ms, 3s, 1m30s, 2h")
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
