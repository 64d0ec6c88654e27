"""What time is it? The only place of the agent that asks.

Every interval is measured by the monotonic clock; the wall clock is for people (reports, logs) and
for the times of spans, which are shifted to it once, so that a stepped clock bends no interval.
"""

from __future__ import annotations

import time

from google.protobuf.timestamp_pb2 import Timestamp


def now_ns() -> int:
    """Monotonic nanoseconds."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns()


def timestamp() -> Timestamp:
    """The wall clock as protobuf has it."""
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)
