"""What does `batchyard jobs check` print?"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from scheduler_service.jobs.check import check
from scheduler_service.jobs.store import StoreDamaged


def run(argv: list[str]) -> int:
    """Check a store. Returns the exit code: 0 sound, 1 not."""
    parser = argparse.ArgumentParser(prog="batchyard jobs")
    parser.add_argument("command", choices=("check",))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    try:
        found = check(options.folder.absolute())
    except StoreDamaged as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1
    if options.json:
        print(json.dumps(asdict(found), indent=2))
        return 1 if found.faults else 0
    for line in found.faults:
        print(f"fault: {line}")
    print(
        f"{found.path}: {found.jobs} jobs ({found.unfinished_jobs} unfinished), "
        f"{found.items_to_run} items to run, {found.results} results, "
        f"{len(found.faults)} faults"
    )
    return 1 if found.faults else 0
