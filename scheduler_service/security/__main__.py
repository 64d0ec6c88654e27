"""The way in to `batchyard tokens` and `batchyard certs`."""

from __future__ import annotations

import sys

from scheduler_service.security import command_line


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 not done, 2 usage."""
    return command_line.run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
