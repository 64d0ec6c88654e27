"""What does Ctrl-C do while a program still loads? It ends it, without a word of Python's.

Loading takes up to a second. Entry points of the command line and of the services import this first
(services by `service_kit.before_grpc`), so it imports next to nothing. Before it, while Python
itself starts, Ctrl-C prints a traceback. A process that ignores SIGINT, as a shell's background
jobs do, goes on ignoring it.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # as `typing` has it, whose import is not quiet yet
if TYPE_CHECKING:
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
    except KeyboardInterrupt:  # where `main` has no handler of its own
        return INTERRUPTED
