"""The way in: run the command, turn every failure into one text and one exit code."""

from __future__ import annotations

import os
import sys

from batchyard import quiet_start  # first of all that is not loaded anyway

INSTALL_HINT = (
    "error: the command line needs packages that are not installed ({missing})\n"
    "why:   only the client library of batchyard is installed\n"
    "next:  pip install 'batchyard[cli]'"
)


def main() -> int:
    """Run `batchyard` with the process's arguments; the exit code is the return value."""
    for name in ("stdout", "stderr"):  # None where the caller has closed it (`>&-`)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if sys.stdout.encoding != "utf-8":  # what it cannot show becomes a question mark
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        from batchyard.cli.root import execute
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich", "yaml"}:
            raise
        print(INSTALL_HINT.format(missing=error.name), file=sys.stderr)
        return 1
    return quiet_start.over(lambda: execute(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
