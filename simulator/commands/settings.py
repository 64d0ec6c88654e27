"""Which options have simulate and plan in common, beside the workload? Aims and predictions."""

from __future__ import annotations

import argparse
from typing import Final

from scheduler_service.core.types import NEVER
from simulator import predictors
from simulator.callers import Predict
from simulator.commands.failures import UsageError
from simulator.report import seconds
from simulator.summary import Objective
from simulator.workload.spans import span
from simulator.workload.synthetic import number

SLO_WAIT: Final = "3s"


def add_objective(parser: argparse.ArgumentParser) -> None:
    """What counts as served well."""
    group = parser.add_argument_group("objective: served well is what succeeds within")
    group.add_argument("--slo-wait", metavar="TIME", help=f"in the queue; default {SLO_WAIT}, "
                       "where no other is given")  # fmt: skip
    group.add_argument("--slo-ttft", metavar="TIME", help="until its first token")
    group.add_argument("--slo-total", metavar="TIME", help="until its end")


def objective(options: argparse.Namespace) -> Objective:
    """The one that was given."""
    given = {
        name: span(text)
        for name in ("wait", "ttft", "total")
        if (text := getattr(options, f"slo_{name}"))
    }
    return Objective(**given or {"wait": span(SLO_WAIT)})


def in_words(aim: Objective) -> str:
    """ "wait within 3 s"."""
    words = [
        f"{what} within {seconds(value / 1e9)}"
        for what, value in (("wait", aim.wait), ("first token", aim.ttft), ("end", aim.total))
        if value < NEVER
    ]
    return ", ".join(words)


def add_prediction(parser: argparse.ArgumentParser) -> None:
    """What the scheduler is told of output lengths."""
    parser.add_argument(
        "--predict", default="task-type", metavar="HOW",
        help="what the scheduler expects of outputs: task-type (default, as live: the file's "
        "expected_output_tokens), oracle, noisy:0.5, tenant-mean, max:1024",
    )  # fmt: skip


def predictor(text: str, seed: int) -> Predict | None:
    """A fresh one; None: by task type.

    Raises:
        UsageError: there is no such.
    """
    name, _, value = text.partition(":")
    if name == "task-type":
        return None
    if name == "oracle":
        return predictors.oracle
    if name == "noisy":
        return predictors.noisy(number("noisy", value or "0.5"), seed)
    if name == "tenant-mean":
        return predictors.TenantMean()
    if name == "max" and value.isdecimal():
        return predictors.at_most(int(value))
    raise UsageError(
        f"--predict: {text!r} is none of task-type, oracle, noisy:SIGMA, tenant-mean, max:TOKENS"
    )
