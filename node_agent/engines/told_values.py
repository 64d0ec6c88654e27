"""Which numbers and names that a server tells can be passed on? The others count as unknown.

A server may say anything: a text, a fraction, minus one for "none", more than a message can hold.
What the scheduler refuses of a node would cost the whole node its session.
"""

from __future__ import annotations

import math
from typing import TypeGuard

_COUNT_END = 2**31  # no prompt, answer or queue is so long
_SECONDS_END = 1e9
_NAME_MAX = 256  # characters, by the protocol
MODELS_MAX = 500  # of one engine; a node may have twice as many
SLOTS_MAX = 65536


def count(value: object) -> int | None:
    """Return `value` if it is a whole number from 0 on that may be a count; None: it is none."""
    if type(value) is int and 0 <= value < _COUNT_END:
        return value
    if isinstance(value, float) and value.is_integer() and 0 <= value < _COUNT_END:
        return int(value)
    return None


def amount(value: object) -> int | None:
    """As `count`, of what is never 0: a limit, a number of slots."""
    return count(value) or None


def seconds(milliseconds: object) -> float | None:
    """Return a duration that was told in milliseconds, in seconds; None: it is none."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    duration_s = milliseconds / 1000.0 if abs(milliseconds) < 1e15 else math.inf
    return duration_s if 0.0 <= duration_s < _SECONDS_END else None


def is_name(value: object) -> TypeGuard[str]:
    """Whether it may be the name of a model."""
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME_MAX:
        return False
    return value.isprintable()  # which half a code point is not
