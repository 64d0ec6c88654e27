"""The way in: `python -m benchmarks`, or `make bench`."""

from __future__ import annotations

import os
import sys


def _main() -> int:
    # gRPC's fork handlers are not needed (children are replaced at once) and complain of threads;
    # it looks at this when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from benchmarks.command import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
