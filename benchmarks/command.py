"""Run the measures that were asked for, print a table, save a results file."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path
from typing import Any

from benchmarks import document, machine, table
from benchmarks.bench import Bench
from benchmarks.measures import ALL
from benchmarks.processes import Cores, pin
from service_kit.event_loop import loop_factory

RESULTS = Path(__file__).resolve().with_name("results")
ROUNDS, ROUND_S = 5, 3.0
BLACK_HOLE_S = 60.0
QUICK_ROUNDS, QUICK_ROUND_S = 1, 0.3


def main(argv: list[str] | None = None) -> int:
    """Measure. Returns the exit code; slow is not a failure, only a verdict in the table."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.document and (not options.name or options.only or options.quick):
        parser.error("--document wants a --name, and a whole run")
    bench = Bench(
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS),
        round_s=options.seconds or (QUICK_ROUND_S if options.quick else ROUND_S),
        quick=options.quick,
        black_hole_s=options.black_hole,
    )
    results = _circumstances(bench)
    pin(0, bench.cores.load)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        results["lines"] = runner.run(_measure(bench, options.only or list(ALL)))
    print(table.plain(results))
    print(table.circumstances(results))
    path = options.results / f"{options.name or _local_name()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"saved as {path}")
    if options.document:
        document.write(path)
        print(f"written into {document.DOCUMENT}")
    return 0


async def _measure(bench: Bench, names: list[str]) -> list[dict[str, Any]]:
    """The lines of these measures, in the order of ALL."""
    lines: list[dict[str, Any]] = []
    async with bench:
        for name, measure in ALL.items():
            if name in names:
                bench.say(f"measuring {name} ...")
                lines += [line.as_json() for line in await measure(bench)]
    return lines


def _circumstances(bench: Bench) -> dict[str, Any]:
    return {
        "measured_at": machine.now().isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "pinning": str(Cores.divide()),
        "options": {"rounds": bench.rounds, "round_s": bench.round_s, "quick": bench.quick},
    }


def _local_name() -> str:
    """Files of this form are not committed."""
    return f"local-{machine.now():%Y%m%d-%H%M%S}"


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", text):
        raise argparse.ArgumentTypeError("use a-z, 0-9, '.', '_' and '-'")
    return text


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the scheduler with simulated engines: processor time first, rates"
        " second, each beside its limit in the same run.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--only", action="append", choices=list(ALL), metavar="NAME",
        help=f"this measure; may be repeated: {', '.join(ALL)}")  # fmt: skip
    add("--rounds", type=int, choices=range(1, 100), metavar="N",
        help=f"rounds of each measure (default {ROUNDS}); the median counts")  # fmt: skip
    add("--seconds", type=_positive, metavar="S", help=f"length of a round (default {ROUND_S:g})")
    add("--black-hole", type=_positive, default=BLACK_HOLE_S, metavar="S",
        help="seconds of load while the collector never answers"
        f" (default {BLACK_HOLE_S:g})")  # fmt: skip
    add("--quick", action="store_true",
        help="one short round of all, to see that it works; the numbers mean little")  # fmt: skip
    add("--name", type=_name, metavar="NAME",
        help="name of the results file (default: local-<time>, which git ignores)")  # fmt: skip
    add("--document", action="store_true",
        help="also write the table into docs/performance.md; needs --name")  # fmt: skip
    add("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where to save it")
    return parser
