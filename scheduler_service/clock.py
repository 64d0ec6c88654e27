"""What time is it? The only place of the scheduler service that reads clocks."""

from __future__ import annotations

import time

from google.protobuf.timestamp_pb2 import Timestamp


class Clock:
    """A monotonic clock for decisions, and wall time for people.

    Wall time of a monotonic instant is what the wall clock says now, less the distance: after a
    step of the wall clock all instants move with it, and no interval becomes negative.
    """

    def now(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def cpu(self) -> int:
        """Processor time of this process, all threads, in nanoseconds."""
        return time.process_time_ns()

    def wall_ns(self, instant: int) -> int:
        """Wall time, nanoseconds since 1970, of a monotonic instant."""
        return time.time_ns() + instant - time.monotonic_ns()

    def timestamp(self, instant: int) -> Timestamp:
        """`wall_ns` for the wire."""
        wall = self.wall_ns(instant)
        return Timestamp(seconds=wall // 1_000_000_000, nanos=wall % 1_000_000_000)
