"""The way in to `batchyard jobs check`."""

from __future__ import annotations

import sys

from scheduler_service.jobs import command_line


def main(argv: list[str] | None = None) -> int:
    """Check a store. Returns the exit code: 0 sound, 1 not, 2 usage."""
    return command_line.run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
