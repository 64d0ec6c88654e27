"""How is a length of time or a size written in a configuration? With its unit: "3s", "64MiB".

Never as a bare number, for each reader would guess another unit; only zero needs none.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_UNITS_BYTES: Final = {
    "B": 1,
    "kB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|m|h|d)")
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_LONGEST_NS: Final = 10_000 * 365 * _UNITS_NS["d"]


def duration_ns(value: object) -> int:
    """Nanoseconds of a text such as "3s", "500ms" or "1m30s". Zero needs no unit.

    Raises:
        ValueError: it is no duration; the text says how to write one.
    """
    if value in ("0", 0) and not isinstance(value, bool):
        return 0
    compact = value.replace(" ", "") if isinstance(value, str) else ""
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError('is no duration: write a number and a unit, as "20ms", "3s", "1m30s"')
    total = int(sum(Decimal(number) * _UNITS_NS[unit] for number, unit in parts))
    if total > _LONGEST_NS:
        raise ValueError("is longer than 10,000 years; leave it out for no limit")
    return total


def duration_s(value: object) -> float:
    """Seconds of a text such as "20ms", "1.5s", "2m". Zero needs no unit.

    Raises:
        ValueError: it is no duration; the text says how to write one.
    """
    return duration_ns(value) / _UNITS_NS["s"]


def size_bytes(value: object) -> int:
    """Bytes of a text such as "64MiB" or "100MB". Zero needs no unit.

    Raises:
        ValueError: it is no size; the text says how to write one.
    """
    if value in ("0", 0) and not isinstance(value, bool):
        return 0
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError('is no size: write a number and its unit, as "64MiB", "100MB", "512B"')
    return int(Decimal(match[1]) * _UNITS_BYTES[match[2]])


def write_duration(nanoseconds: int) -> str:
    """The shortest text that `duration_ns` reads as this."""
    if nanoseconds == 0:
        return "0s"
    text = ""
    for unit in reversed(_UNITS_NS):
        count, nanoseconds = divmod(nanoseconds, _UNITS_NS[unit])
        if count:
            text += f"{count}{unit}"
    return text


def write_size(size: int) -> str:
    """In the largest unit that leaves a whole number."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _UNITS_BYTES[unit] == 0:
            return f"{size // _UNITS_BYTES[unit]}{unit}"
    return f"{size}B"


DurationNs = Annotated[int, BeforeValidator(duration_ns)]
PositiveDurationNs = Annotated[int, BeforeValidator(duration_ns), Field(gt=0)]
DurationS = Annotated[float, BeforeValidator(duration_s)]
PositiveDurationS = Annotated[float, BeforeValidator(duration_s), Field(gt=0.0)]
SizeBytes = Annotated[int, BeforeValidator(size_bytes), Field(gt=0)]
