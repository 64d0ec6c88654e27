"""`batchyard simulate`: the same requests and nodes under each policy file, side by side."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from scheduler_service.core.types import SECOND
from scheduler_service.recording.file import RecordingFile
from simulator import fleet, incidents
from simulator.commands import known, policy_files, progress, settings, whole, workloads, writing
from simulator.commands.failures import UsageError
from simulator.commands.policy_files import PolicyFile
from simulator.commands.rows import run_rows
from simulator.curves import curves
from simulator.pages.comparison import comparison
from simulator.predictors import TenantMean
from simulator.report import cells, table
from simulator.simulation import Plan, Run, simulate
from simulator.summary import Objective, Summary
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import WorldSettings

ABOUT: Final = """What would these policies do with these requests on these nodes?

Runs the scheduler's own code in simulated time, once for each --policy, on the same requests, nodes
and incidents. The same seed gives the same answer. For example:

  batchyard simulate --trace azure-conv --to 10m --nodes 5xslots-70B --policy scheduler.yaml \\
    --policy policies.order=fifo --slo-wait 3s --kill 2@300s --html report.html
"""
SAMPLES: Final = 2_000  # looks at the queue in a run, at most one a second
TENANTS_SHOWN: Final = 3
_SCALE = re.compile(r"(\d+)\.\.(\d+)(?::(\w+))?")


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of the command's."""
    parser.set_defaults(run=run)
    workloads.add_options(parser)
    settings.add_objective(parser)
    group = parser.add_argument_group("nodes and policies")
    add = group.add_argument
    add("--nodes", required=True, metavar="NxKIND,...",
        help=f"as 8xH100-70B, or 2xH100-70B=large,1xH100x1-7B-2025=small to name what they serve. "
        f"Kinds: {', '.join(fleet.KINDS)}")  # fmt: skip
    add("--policy", action="append", default=[], metavar="FILE", dest="policies",
        help="a scheduler.yaml, or settings as policies.order=fifo;queue.floor_every=0; again for "
        "each one to compare; default: the defaults")  # fmt: skip
    add("--autoscale", metavar="MIN..MAX[:POLICY]",
        help="scale the first kind of nodes, by the file's policy or by this one")  # fmt: skip
    add("--kill", action="append", default=[], metavar="NODE@TIME", dest="kills",
        help="2@600s: node 2 dies, of 0, 1, 2 ...; +2m: it is back after that; *3: it "
        "is slower")  # fmt: skip
    add("--failures", action="store_true",
        help="nodes fail and come back at the usual rate of such machines")  # fmt: skip
    settings.add_prediction(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    parser.add_argument("--record", type=writing.file, metavar="FILE",
                        help="record the only run, for batchyard replay")  # fmt: skip
    writing.add_options(parser)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is run, whatever the policies."""

    arrivals: Sequence[Arrival]
    groups: Sequence[fleet.Group]
    objective: Objective
    incidents: Sequence[incidents.Incident]
    task_type: str
    predict: str
    seed: int


def run(options: argparse.Namespace) -> int:
    """Exit code 0."""
    question = ask(options, fleet.parse(options.nodes), with_incidents=True)
    files = policy_files.load_all(options.policies, more=scaling(options.autoscale))
    known.check_nodes(question.groups, files)
    known.check(options, question.groups, files)
    if options.record is not None and len(files) > 1:
        raise UsageError("--record is for a run of one policy")
    if not any(file.config.autoscale.enabled for file in files):
        _check_kills(options.kills, question)
    runs = []
    with (
        progress.bar(quiet=options.quiet) as begin,
        whole.recording(options.record) as recording,
    ):
        for file in files:
            counting = progress.Counting(begin(file.name, len(question.arrivals)))
            runs.append(play(question, file, record=recording, watchers=[counting]))
            counting.flush()
    document = _document(options, question, runs)
    summaries = [run.summary for run in runs]
    answer = writing.Answer(
        document=document,
        table=lambda wide: told(question, options, summaries, wide=wide),
        names=lambda: [summary.name for summary in summaries],
        rows=lambda: run_rows(summaries),
        page=lambda: comparison(document, cells(summaries, tenants=TENANTS_SHOWN)),
    )
    writing.write(options, answer)
    return 0


def _check_kills(kills: Sequence[str], question: Question) -> None:
    nodes = sum(group.count for group in question.groups)
    for text in kills:
        if incidents.parse(text).node >= nodes:
            raise UsageError(f"--kill: {text!r}: there is no such node of {nodes}, the first is 0")


def ask(
    options: argparse.Namespace, groups: Sequence[fleet.Group], *, with_incidents: bool
) -> Question:
    """The question that the options put.

    Raises:
        UsageError, TraceError, FleetError, ScenarioError: they put none.
    """
    given = workloads.arrivals(options, options.model or groups[0].kind.models[0])
    settings.predictor(options.predict, options.seed)  # as early as the rest
    happens = [incidents.parse(text) for text in options.kills] if with_incidents else []
    if with_incidents and options.failures:
        nodes = sum(group.count for group in groups)
        happens += incidents.usual(nodes, given[-1].at + SECOND, seed=options.seed)
    return Question(
        arrivals=given,
        groups=groups,
        objective=settings.objective(options),
        incidents=happens,
        task_type=options.task_type,
        predict=options.predict,
        seed=options.seed,
    )


def play(
    question: Question,
    file: PolicyFile,
    *,
    name: str = "",
    groups: Sequence[fleet.Group] = (),
    record: RecordingFile | None = None,
    watchers: Sequence[Watcher] = (),
) -> Run:
    """One run of the question under one policy file, on other nodes where they are given."""
    predict = settings.predictor(question.predict, question.seed)
    watching: list[Watcher] = list(watchers)
    if isinstance(predict, TenantMean):
        watching.append(predict)
    span = question.arrivals[-1].at
    plan = Plan(
        name=name or file.name,
        fleet=groups or question.groups,
        policies=lambda: file.policies(seed=question.seed),
        world=WorldSettings(
            core=file.settings(seed=question.seed),
            seed=question.seed,
            sample_every=max(SECOND, span // SAMPLES),
            heartbeat=file.heartbeat,
            record=record,
        ),
        terms=file.terms(question.task_type, predict=predict),
        objective=question.objective,
        managed=file.config.autoscale.enabled,
        prepare=[incidents.plan(question.incidents)],
        watchers=watching,
    )
    return simulate(plan, workloads.copies(question.arrivals))


def scaling(text: str | None) -> list[str]:
    """Settings of `--autoscale`.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return []
    match = _SCALE.fullmatch(text)
    if match is None:
        raise UsageError(f"--autoscale: {text!r} is not MIN..MAX or MIN..MAX:POLICY, as 2..12:law")
    least, most, policy = match.groups()
    found = ["autoscale.enabled=true", f"autoscale.min={least}", f"autoscale.max={most}"]
    return [*found, f"policies.autoscale={policy}"] if policy else found


def told(
    question: Question, options: argparse.Namespace, summaries: Sequence[Summary], *, wide: bool
) -> str:
    """The table, under what it is about."""
    return (
        f"{len(question.arrivals)} requests of {workloads.described(options)} on {options.nodes}, "
        f"seed {question.seed}\nobjective: {settings.in_words(question.objective)}\n\n"
        + table(summaries, tenants=None if wide else TENANTS_SHOWN)
    )


def _document(
    options: argparse.Namespace, question: Question, runs: Sequence[Run]
) -> dict[str, Any]:
    aim = asdict(question.objective)
    return {
        "command": "simulate",
        "workload": workloads.described(options),
        "requests": len(question.arrivals),
        "nodes": options.nodes,
        "calibration": sorted(
            {g.kind.labels.get("calibration", "") for g in question.groups} - {""}
        ),
        "incidents": list(options.kills) + (["at the usual rate"] if options.failures else []),
        "autoscale": options.autoscale or "",
        "objective": settings.in_words(question.objective),
        "objective_s": {name: value / SECOND for name, value in aim.items() if value < 1 << 61},
        "seed": question.seed,
        "runs": [
            {"name": run.summary.name, "summary": run.summary.as_dict(), **curves(run.metrics)}
            for run in runs
        ],
    }
