"""Which requests does a run get? The options that say so, and the arrivals they mean."""

from __future__ import annotations

import argparse
import gzip
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from scheduler_service.core.types import NEVER, SECOND, Duration
from simulator.commands.failures import UsageError
from simulator.workload.arrival import Arrival
from simulator.workload.assignment import PRIORITIES, Assignment, between, faster
from simulator.workload.lengths import preset
from simulator.workload.servegen import is_windows, servegen
from simulator.workload.spans import span
from simulator.workload.synthetic import number, workload
from simulator.workload.traces import BUNDLED, find, load

SHARES: Final = ",".join(f"{level}:{share:.0%}" for level, share in PRIORITIES.items())

MOST_TENANTS: Final = 1_000_000
MOST_REQUESTS: Final = 10_000_000  # what memory holds, about 4 GB
ROUNDING: Final = 0.015  # that shares may be off 1 by: three of 33%


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every command that needs requests."""
    group = parser.add_argument_group("requests")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--trace", metavar="FILE",
        help=f"Azure, Mooncake, Qwen-Bailian, BurstGPT or ServeGen's windows, plain or gzipped; "
        f"or one that comes along: {', '.join(BUNDLED)}",
    )  # fmt: skip
    source.add_argument(
        "--workload", metavar="SPEC",
        help="a synthetic one: poisson:rate=5,lasts=10m,lengths=azure-conv; also gamma, steps, "
        "bursts, servegen",
    )  # fmt: skip
    add = group.add_argument
    add("--from", dest="start", metavar="TIME", default="0", help="leave out what comes before")
    add("--to", dest="end", metavar="TIME", help="and what comes from then on")
    add("--speed", metavar="X", default="1", help="so many times as fast: 2 halves all gaps")
    add("--model", help="what they ask for; default: the first of the first nodes")
    add("--task-type", default="other",
        help="whose max_wait, timeout, degrade, expected length (in the file) hold")  # fmt: skip
    add("--priorities", metavar="P:SHARE,...", default=SHARES,
        help=f"10 = most urgent; default {SHARES.replace('%', '%%')}")  # fmt: skip
    add("--tenants", type=int, metavar="N", default=100,
        help="so many, by Zipf's law, where a trace names none; default 100")  # fmt: skip
    add("--timeout", metavar="P:TIME,...", default="",
        help="deadlines by priority, as 10:5s,7:20s")  # fmt: skip


def arrivals(options: argparse.Namespace, model: str) -> list[Arrival]:
    """All of them, with tenants and priorities.

    Raises:
        TraceError: the trace or the workload cannot be read.
        UsageError: another option cannot.
    """
    seed = options.seed
    if not 0 <= options.tenants <= MOST_TENANTS:
        raise UsageError(f"--tenants is a number from 0 (none) to {MOST_TENANTS:,}")
    read = _read(options)
    speed = number("--speed", options.speed, least=0.001, most=1_000_000)
    end = span(options.end) / SECOND if options.end else NEVER / SECOND
    cut = between(read, span(options.start) / SECOND, end)
    assignment = Assignment(
        seed=seed,
        tenants=options.tenants,
        priorities=priorities(options.priorities),
        timeouts=timeouts(options.timeout),
    )
    drawn = assignment(faster(cut, speed) if speed != 1 else cut)
    found = list(itertools.islice(drawn, MOST_REQUESTS + 1))
    if len(found) > MOST_REQUESTS:
        raise UsageError(f"these are more than {MOST_REQUESTS:,} requests: take less, as --to 1h")
    if not found:
        raise UsageError("there is no request in that stretch of the workload")
    for arrival in found:
        arrival.model = model
        arrival.task_type = options.task_type
    return found


def copies(given: Iterable[Arrival]) -> Iterator[Arrival]:
    """Fresh ones for one more run."""
    return (replace(arrival) for arrival in given)


def described(options: argparse.Namespace) -> str:
    """For headings."""
    text: str = options.workload if options.trace is None else Path(options.trace).name
    if options.end or options.start != "0":
        text += f" from {options.start} to {options.end or 'its end'}"
    if options.speed != "1":
        text += f", {options.speed} times as fast"
    return text


def _read(options: argparse.Namespace) -> Iterator[Arrival]:
    if options.trace is None:
        return workload(options.workload, seed=options.seed)
    path = find(options.trace)
    if is_windows(_first_line(path)):
        return servegen(preset("azure-conv"), seed=options.seed, lasts=_DAYS, path=path)
    return load(options.trace, seed=options.seed)


_DAYS: Final[Duration] = 7 * 24 * 3600 * SECOND  # a week of windows; `--to` ends it sooner


def _first_line(path: Path) -> str:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    opened: Any = gzip.open if zipped else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            line: str = file.readline()
    except (OSError, EOFError, UnicodeDecodeError):
        return ""
    return line


def priorities(text: str) -> dict[int, float]:
    """Shares by priority, together all: "10:10%,5:0.9".

    Raises:
        UsageError: they are none.
    """
    found: dict[int, float] = {}
    for level, value in _pairs("--priorities", text):
        if level in found:
            raise UsageError(f"--priorities: {level} has two shares")
        share = value.removesuffix("%")
        try:
            found[level] = float(share) / (100 if share != value else 1)
        except ValueError:
            raise UsageError(f"--priorities: {value!r} is no share, as 0.2 or 20%") from None
    if not found or min(found.values()) < 0:
        raise UsageError("--priorities: shares are positive, as in 10:10%,5:70%,1:20%")
    if not abs(sum(found.values()) - 1) <= ROUNDING:
        raise UsageError(
            f"--priorities: the shares of {text!r} are {sum(found.values()):.4g} in all: they are "
            "to be 1, or 100%, as in 10:10%,5:70%,1:20%"
        )
    return found


def timeouts(text: str) -> dict[int, Duration]:
    """Times by priority: "10:5s"."""
    return {level: span(value) for level, value in _pairs("--timeout", text)}


def _pairs(option: str, text: str) -> Iterator[tuple[int, str]]:
    for part in filter(None, text.split(",")):
        level, colon, value = part.partition(":")
        if not colon or not level.isdecimal() or not 1 <= int(level) <= 10:
            raise UsageError(f"{option}: {part!r} is not PRIORITY:VALUE, priorities are 1..10")
        yield int(level), value
