"""`python -m simulator [SCENARIO] [--seed N] [--count N] [--log FILE]`: run fault scenarios.

A seed that fails is run again, with its event log, by the command that its message names.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator import scenario as scenarios
from simulator.checkers import Broken


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    known = ", ".join(scenarios.names())
    parser.add_argument("scenario", nargs="?", help=f"a file, or one of {known}; default: all")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from that one on")
    parser.add_argument("--log", type=Path, help="write one line per event there")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 all promises kept, 1 one was not, 2 no such scenario."""
    options = _parser().parse_args(arguments)
    names = [options.scenario] if options.scenario else scenarios.names()
    try:
        for name in names:
            for seed in range(options.seed, options.seed + options.count):
                _run(name, seed, options.log)
    except scenarios.ScenarioError as fault:
        print(fault, file=sys.stderr)
        return 2
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    return 0


def _run(name: str, seed: int, log: Path | None) -> None:
    plan = scenarios.load(name)
    plan.seed = seed
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("w", encoding="utf-8")).write if log else None
        done = scenarios.run(plan, log=sink)
    outcomes: dict[str, int] = {}
    for story in done.accounts.stories.values():
        outcomes[str(story.outcome)] = outcomes.get(str(story.outcome), 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    lines, digest = done.log.lines, done.log.digest
    print(f"{plan.name} seed {seed}: {told}; {lines} events, digest {digest}", flush=True)
