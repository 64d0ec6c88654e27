"""What gRPC has to find in the environment when it is imported: entry points import this first.

Both services start processes, always by fork and exec. uvloop runs every fork handler in the child,
and gRPC's, with other threads inside gRPC, crash about one child in a hundred before its exec
(measured: SIGSEGV or SIGABRT in 6 of 550; none with this setting, none with asyncio's own loop,
which runs no handlers). gRPC reads the variable when it is imported; later is too late.
"""

from __future__ import annotations

import os

import batchyard.quiet_start  # noqa: F401 # gRPC takes long to import

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# What fails comes to us as an exception or a status, and is told once, in our own words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
