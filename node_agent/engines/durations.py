"""How long is "20ms"? Durations in engine options: a number and its unit, never a bare number."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h)")


def duration_s(value: object) -> float:
    """Return the seconds of a text such as "20ms", "1.5s", "2m". "0" needs no unit.

    Raises:
        ValueError: it is not a duration; the text says how to write one.
    """
    if value in ("0", 0) and not isinstance(value, bool):
        return 0.0
    match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a duration: write a number and a unit, as "20ms", "2s"')
    return float(match[1]) * _UNITS_S[match[2]]


DurationS = Annotated[float, BeforeValidator(duration_s), Field(ge=0.0)]
PositiveDurationS = Annotated[float, BeforeValidator(duration_s), Field(gt=0.0)]
