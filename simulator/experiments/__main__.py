"""`python -m simulator.experiments [NAME ...] [--short]`: run experiments and print their rows."""

from __future__ import annotations

import sys

from simulator.experiments.registry import EXPERIMENTS
from simulator.experiments.verdicts import render


def main(arguments: list[str]) -> int:
    """Exit status: 1 if a row failed, 2 if there is no such experiment."""
    short = "--short" in arguments
    names = [a for a in arguments if a != "--short"] or list(EXPERIMENTS)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        print(f"no experiment {unknown[0]!r}; known: {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    failed = False
    for name in names:
        experiment = EXPERIMENTS[name]
        print(f"{name}: {experiment.title}", flush=True)
        rows = experiment.run(short)
        print(render(rows), end="\n\n", flush=True)
        failed = failed or not all(row.passed for row in rows)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
