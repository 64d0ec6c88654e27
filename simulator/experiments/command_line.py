"""Run the experiments that were asked for, print their rows, and keep them for the document."""

from __future__ import annotations

import argparse
import sys
import time

from simulator.experiments import document
from simulator.experiments.registry import EXPERIMENTS
from simulator.experiments.verdicts import render


def main(arguments: list[str]) -> int:
    """Exit status: 1 if a row failed, 2 if there is no such experiment, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m simulator.experiments", allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--short", action="store_true", help="small runs, which prove less")
    parser.add_argument(
        "--document", action="store_true", help="also keep the results, and write the page"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}; known: {', '.join(EXPERIMENTS)}")
    if options.short and options.document:
        parser.error("the document is made of whole runs: leave --short out")
    names = options.names or list(EXPERIMENTS)
    kept: list[str] = []
    try:
        passed = [_one(name, options, kept) for name in names]
    except KeyboardInterrupt:
        done = f"kept: {', '.join(kept)}" if kept else "nothing was kept"
        print(f"interrupted; {done}", file=sys.stderr)
        return 130
    return int(not all(passed))


def _one(name: str, options: argparse.Namespace, kept: list[str]) -> bool:
    """Run it; True: all of its rows passed."""
    experiment = EXPERIMENTS[name]
    print(f"{name}: {experiment.title}", flush=True)
    begun = time.monotonic()
    found = experiment.run(options.short)
    print(render(found.rows), end="\n\n", flush=True)
    if options.document:
        document.keep(experiment, found, time.monotonic() - begun)
        document.write(EXPERIMENTS)
        kept.append(name)
    return all(row.passed for row in found.rows)
