"""Runs a module that ends when the process that started it ends, however that ends.

`python -m batchyard.cli.dev.leash PARENT_PID MODULE ARGUMENTS...` asks Linux for SIGTERM at its
parent's death and becomes the module; the request survives the exec. A pipe that the module would
have to watch needs the module's help, and code between fork and exec is not safe with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from batchyard.cli.installed import python_module

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def command(module: str, arguments: list[str]) -> list[str]:
    """The command line that runs `module` on a leash that this process holds."""
    return [*python_module("batchyard.cli.dev.leash"), str(os.getpid()), module, *arguments]


def main(parent_pid: int, module: str, arguments: list[str]) -> None:
    """Take the leash and become the module."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:  # it died before the leash was on
        return
    os.execv(sys.executable, [*python_module(module), *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
