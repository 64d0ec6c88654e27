"""Which command is meant, and how does it end? Errors in one line, exit codes as everywhere.

0: done; 1: it failed, or the answer is no; 2: it was not said right; 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scheduler_service.recording.reader import RecordingError
from simulator.commands import plan, replay, simulate
from simulator.commands.failures import UsageError
from simulator.fleet import FleetError
from simulator.scenario import ScenarioError
from simulator.workload.errors import TraceError

COMMANDS: Final[dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]]] = {
    "simulate": (simulate.add_options, simulate.ABOUT),
    "plan": (plan.add_options, plan.ABOUT),
    "replay": (replay.add_options, replay.ABOUT),
}
_SAID_WRONG: Final = (UsageError, FleetError, ScenarioError, TraceError)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    wanted: list[Path] = []
    try:
        options = _parser().parse_args(arguments)
        files = (getattr(options, name, None) for name in ("record", "out", "html"))
        wanted += (path for path in files if path is not None)
        code: int = options.run(options)
        sys.stdout.flush()
    except _SAID_WRONG as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    except RecordingError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has gone (`| head`); keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        print(f"error: {where}{fault.strerror or fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        names = ", ".join(map(str, wanted))
        print(f"interrupted{': not written: ' if names else ''}{names}", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batchyard", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="simulate|plan|replay")
    for name, (add_options, about) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=about.splitlines()[0],
            description=about,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_options(command)
    return parser
