"""Which of two calls came first, if all that orders them is the deadlines of their RPCs?

gRPC writes a call's time limit with three digits or so and rounds up: of 60 s it makes 60.0 s or
60.1 s, of 20 minutes 1200 s or 1210 s. Such a deadline is good to end a call by. As an order it
would let calls of one length pass each other at random; so there lengths count by steps that are
wider than the rounding, and calls on the same step go by arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from scheduler_service.core.types import Duration

# Limits that people write are on a step or well above it, and their rounding stays there.
_STEPS: Final = tuple(
    digits * 10**power
    for power in range(5, 17)  # nanoseconds: from 1 ms on
    for digits in (10, 12, 15, 20, 25, 30, 40, 45, 50, 60, 75, 80, 90)
)


def even(length: Duration) -> Duration:
    """The step that a limit is on, a little of which may have passed already.

    60 s, whether 59.9 s or 60.1 s came through; below 1 ms, the length itself.
    """
    at = bisect_right(_STEPS, length + length // 200)
    return _STEPS[at - 1] if at else length
