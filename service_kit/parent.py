"""Has our parent gone? With `--exit-with-stdin` a service ends when its standard input closes, so
that no orphan stays behind, however the parent ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable


def watch_stdin(on_closed: Callable[[], None]) -> None:
    """Call `on_closed` on the running loop when standard input ends. What comes is dropped.

    Where no parent holds it, as with /dev/null or a file, it has ended already.
    """
    loop = asyncio.get_running_loop()
    if sys.stdin is None:
        loop.call_soon(on_closed)
        return
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        try:
            ended = not os.read(descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            loop.remove_reader(descriptor)
            on_closed()

    os.set_blocking(descriptor, False)
    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:  # there is nothing to wait for
        loop.call_soon(on_closed)
