"""Runs a service whose wall clock can be set, as by a bad time server, while it runs.

    python -m tests.chaos.jumping_clock scheduler_service --client-port=0

SIGUSR1 sets the clock an hour ahead, SIGUSR2 an hour back; the monotonic clock goes on as ever.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time

HOUR_S = 3600


def main() -> None:
    """Run the module that the first argument names, with the rest as its arguments."""
    offset_s = 0
    real, real_ns = time.time, time.time_ns

    def jump(number: int, _frame: object) -> None:
        nonlocal offset_s
        offset_s += HOUR_S if number == signal.SIGUSR1 else -HOUR_S

    time.time = lambda: real() + offset_s
    time.time_ns = lambda: real_ns() + offset_s * 1_000_000_000
    signal.signal(signal.SIGUSR1, jump)
    signal.signal(signal.SIGUSR2, jump)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
