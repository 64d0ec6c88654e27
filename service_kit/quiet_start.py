"""What does Ctrl-C do while a program still loads? It ends it, without a word of Python's.

Loading takes up to a second; entry points import this first, by `before_grpc`. A process that
ignores SIGINT, as a shell's background jobs do, goes on ignoring it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

INTERRUPTED = 130  # the exit code of who was ended by Ctrl-C, as shells count

_LOADS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _LOADS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def over(main: Callable[[], int]) -> int:
    """All is loaded: run the program. From here Ctrl-C leaves nothing half done."""
    if _LOADS:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return main()
    except KeyboardInterrupt:  # before it had a handler of its own
        return INTERRUPTED
