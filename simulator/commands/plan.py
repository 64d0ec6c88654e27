"""`batchyard plan`: how many nodes of which kind, and what each number of them would cost."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from simulator import fleet
from simulator.commands import (
    known,
    policy_files,
    progress,
    settings,
    simulate,
    workloads,
    writing,
)
from simulator.commands.failures import UsageError
from simulator.kinds import NodeKind
from simulator.pages.curve import curve_page
from simulator.planning import Advice, Nodes, Point, advise
from simulator.report import aligned, seconds, share
from simulator.summary import Summary

ABOUT: Final = """How many nodes of which kind serve these requests well enough?

Each number that is tried is a whole run of the scheduler's own code in simulated time. Prices are
round figures per GPU and hour; give your own with --price. For example:

  batchyard plan --trace azure-conv --to 20m --kinds H100-70B,A100-70B --slo-wait 3s --attain 99%

Exit code 0: there is an answer, 1: no kind serves well enough with --most nodes.
"""
MOST: Final = 64
_COUNTED = re.compile(r"\d+x")


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of the command's."""
    parser.set_defaults(run=run)
    workloads.add_options(parser)
    settings.add_objective(parser)
    parser.add_argument("--attain", default="99%", metavar="SHARE",
                        help="of the requests to be served well; default 99%%")  # fmt: skip
    group = parser.add_argument_group("nodes and policies")
    add = group.add_argument
    add("--kinds", default="H100-70B,A100-70B", metavar="KIND,...",
        help=f"to choose from, KIND@SLOTS for other slots than its own: "
        f"{', '.join(fleet.KINDS)}; default H100-70B,A100-70B")  # fmt: skip
    add("--price", action="append", default=[], metavar="KIND=PRICE", dest="prices",
        help="of a node and hour, where the built-in one is not yours")  # fmt: skip
    add("--mix", action="store_true",
        help="try two kinds together, too, wherever that would cost less")  # fmt: skip
    add("--most", type=int, default=MOST, metavar="N", help=f"nodes at most; default {MOST}")
    add("--policy", metavar="FILE", default=policy_files.DEFAULT,
        help="a scheduler.yaml, or settings as policies.order=fifo")  # fmt: skip
    settings.add_prediction(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    writing.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Exit code 0: there is an answer."""
    kinds = _kinds(options.kinds, options.prices)
    target = _share(options.attain)
    if options.most < 1:
        raise UsageError("--most is a number of nodes, 1 or more")
    question = simulate.ask(options, [fleet.Group(1, kinds[0])], with_incidents=False)
    (file,) = policy_files.load_all([options.policy])
    known.check(options, [fleet.Group(1, kind) for kind in kinds], [file])
    with progress.bar(quiet=options.quiet) as begin:

        def play(nodes: Nodes) -> Summary:
            words = " + ".join(f"{count} x {kind.name}" for kind, count in nodes)
            counting = progress.Counting(begin(words, len(question.arrivals)))
            groups = [fleet.Group(count, kind) for kind, count in nodes]
            done = simulate.play(question, file, name=words, groups=groups, watchers=[counting])
            counting.flush()
            return done.summary

        advice = advise(kinds, play, target=target, most=options.most, mixed=options.mix)
    document = {
        "command": "plan",
        "workload": workloads.described(options),
        "requests": len(question.arrivals),
        "objective": settings.in_words(question.objective),
        "policy": file.name,
        "seed": options.seed,
        **advice.as_dict(),
    }
    best = advice.best
    answer = writing.Answer(
        document=document,
        table=lambda wide: told(advice, document, wide=wide),
        names=lambda: [] if best is None else [best.fleet],
        rows=lambda: {"fleets": fleets(advice)},
        page=lambda: curve_page(document, rows(advice), in_words(advice)),
    )
    writing.write(options, answer)
    return 0 if best is not None else 1


def _kinds(text: str, prices: Sequence[str]) -> list[NodeKind]:
    for part in text.split(","):
        if _COUNTED.match(part.strip()):
            raise UsageError(f"--kinds: {part!r}: a kind alone, for its number is the answer")
    kinds = [
        _known_by(part, group.kind)
        for part, group in zip(text.split(","), fleet.parse(text), strict=True)
    ]
    named = {}
    for given in prices:
        name, equals, value = given.partition("=")
        if not equals or name not in {kind.name for kind in kinds}:
            raise UsageError(f"--price: {given!r} is not KIND=PRICE with one of --kinds")
        try:
            named[name] = float(value)
        except ValueError:
            raise UsageError(f"--price: {value!r} is no price") from None
        if not 0 <= named[name] < math.inf:
            raise UsageError(f"--price: {value!r} is no price: 0 or more")
    return [replace(k, price_per_hour=named.get(k.name, k.price_per_hour)) for k in kinds]


def _known_by(part: str, kind: NodeKind) -> NodeKind:
    """With the slots in its name where they are not its own."""
    return replace(kind, name=f"{kind.name}@{kind.slots}") if "@" in part else kind


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if number != text else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UsageError(f"--attain: {text!r} is no share, as 99% or 0.99")
    return value


def in_words(advice: Advice) -> str:
    """The answer."""
    best = advice.best
    if best is None:
        return (
            f"No kind serves {share(advice.target)} of the requests well with the nodes allowed: "
            "raise --most, or ask for less"
        )
    return (
        f"{_named(best)} for {best.price_per_hour:.2f} an hour serves "
        f"{share(best.attained)} well ({share(advice.target)} wanted)"
    )


def rows(advice: Advice, *, wide: bool = False) -> list[list[str]]:
    """The table, its head first; "<" marks the least that serves well."""
    head = ["nodes", "served well", "wait p99", "first token p99"]
    head += ["total p99"] if wide else []
    head += ["utilisation", "per hour", "per M tokens", ""]
    lines = [_row(p, curve.answer, wide=wide) for curve in advice.curves for p in curve.points]
    return [head, *lines]


def fleets(advice: Advice) -> list[dict[str, Any]]:
    """All that were run, for a pipe."""
    best = advice.best
    return [
        {**asdict(point), "answer": point is curve.answer, "best": point is best}
        for curve in advice.curves
        for point in curve.points
    ]


def _named(point: Point) -> str:
    return " + ".join(part.replace("x", " x ", 1) for part in point.fleet.split(","))


def _row(point: Point, answer: Point | None, *, wide: bool) -> list[str]:
    return [
        _named(point),
        share(point.attained),
        seconds(point.wait_p99_s),
        seconds(point.ttft_p99_s),
        *([seconds(point.total_p99_s)] if wide else []),
        share(point.utilisation),
        f"{point.price_per_hour:.2f}",
        f"{point.cost_per_million_tokens:.2f}",
        "<" if point is answer else "",
    ]


def told(advice: Advice, document: dict[str, Any], *, wide: bool) -> str:
    """The table, between the question and the answer."""
    return (
        f"{document['requests']} requests of {document['workload']}, policy {document['policy']}, "
        f"seed {document['seed']}\nobjective: {document['objective']}, for "
        f"{share(advice.target)}\n\n{aligned(rows(advice, wide=wide))}\n\n{in_words(advice)}"
    )
