"""`batchyard replay`: a recording of a live scheduler, run again, or under another policy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import SECOND
from scheduler_service.recording.reader import Recording, RecordingError, read
from scheduler_service.recording.replay import Difference, Replayed, replay
from simulator import recalled
from simulator.callers import Terms
from simulator.commands import policy_files, settings, writing
from simulator.commands.policy_files import PolicyFile
from simulator.commands.rows import run_rows
from simulator.curves import curves
from simulator.pages.comparison import comparison
from simulator.recalled import Recalled
from simulator.report import cells, table
from simulator.simulation import Plan, Run, simulate
from simulator.summary import Objective, Summary, summarise
from simulator.world import WorldSettings

ABOUT: Final = """Would this program decide the same again, or another policy otherwise?

FILE is what `recording.file` in scheduler.yaml made. Without --policy its events are run through
the core of this version: exit code 0 if every decision is the same, else 1 with the first that is
not. With --policy the first decision that differs is told, and the recorded requests and nodes are
simulated under the recorded and each given policy, beside what really happened.
"""
SHOWN: Final = 5  # decisions of each side
NAMED: Final = 4  # requests, by their ids
HAPPENED: Final = "as it happened"
SAME: Final = "simulated: recorded policy"
TENANTS_SHOWN: Final = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of the command's."""
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--policy", action="append", default=[], metavar="FILE", dest="policies",
                        help="a scheduler.yaml, or settings as policies.order=fifo")  # fmt: skip
    settings.add_objective(parser)
    writing.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Exit code 0: the same again; with policies: they could be compared."""
    recording = read(options.file)
    if options.policies:
        contenders = [
            _contender(recording, file) for file in policy_files.load_all(options.policies)
        ]
        return _compare(options, recording, contenders)
    history = recalled.recall(recording)
    done = history.replayed
    document = _answer(recording, done)
    summaries = [_happened(history, settings.objective(options))]
    answer = writing.Answer(
        document=document,
        table=lambda _wide: told(recording, done),
        names=lambda: [str(recording.path)],
        rows=lambda: {
            "replays": [{k: v for k, v in document.items() if k != "difference"}],
        },
        page=lambda: comparison(
            {
                **_about(options, recording, history),
                "runs": [_run(summaries[0], curves(history.metrics))],
            },
            cells(summaries, tenants=TENANTS_SHOWN),
        ),
    )
    writing.write(options, answer)
    return 0 if done.difference is None else 1


def told(recording: Recording, done: Replayed) -> str:
    """What came of a replay."""
    how = {"closed": "", "full": "; the file was full then"}.get(
        recording.end, "; the process was ended then"
    )
    what = f"{done.steps} steps, {done.decisions} decisions, {len(done.requests)} requests"
    over = f"over {done.lasted / SECOND:.1f} s{how}"
    if done.difference is None:
        return f"identical: {what} {over}"
    return f"different after {what}\n{in_words(done.difference, done.requests)}"


def in_words(difference: Difference, requests: Mapping[int, str]) -> str:
    """The first difference, with the ids of its requests."""
    lines = [f"step {difference.step}, {difference.after / SECOND:.3f} s after the first"]
    for side, decisions in (
        ("recorded", difference.recorded),
        ("now", difference.replayed),
    ):
        lines += [f"  {side + ':':<10}{line}" for line in decisions[:SHOWN] or ["nothing"]]
        if len(decisions) > SHOWN:
            lines.append(f"  {'':<10}and {len(decisions) - SHOWN} more")
    text = "\n".join(lines)
    named = [(f"#{rid}", name) for rid, name in requests.items() if _names(text, rid)]
    told = ", ".join(f"{number} is {name}" for number, name in named[:NAMED])
    return f"{text}\n  {told}" if told else text


def _names(text: str, rid: int) -> bool:
    return f"#{rid}." in text or f"#{rid} " in text


def _answer(recording: Recording, done: Replayed) -> dict[str, Any]:
    difference = done.difference
    return {
        "command": "replay",
        "file": str(recording.path),
        "identical": difference is None,
        "end": recording.end,
        "steps": done.steps,
        "decisions": done.decisions,
        "requests": len(done.requests),
        "lasted_s": done.lasted / SECOND,
        "difference": None if difference is None else asdict(difference),
    }


@dataclass(frozen=True)
class Contender:
    """A policy to compare with."""

    name: str
    settings: CoreSettings
    policies: Callable[[], PolicySet]  # fresh ones


def _contender(recording: Recording, file: PolicyFile) -> Contender:
    """A file in the place of the recorded one; ids and known models stay."""
    own = recording.settings
    core = file.settings(seed=own.seed, term=own.term)
    known = own.known_models | core.known_models
    return Contender(
        file.name, replace(core, known_models=known), lambda: file.policies(seed=own.seed)
    )


def _compare(
    options: argparse.Namespace, recording: Recording, contenders: Sequence[Contender]
) -> int:
    history = recalled.recall(recording)
    if history.replayed.difference is not None:
        raise RecordingError(
            f"{recording.path}: this version does not decide as the recorded one did, so nothing "
            f"can be compared with it: {told(recording, history.replayed)}"
        )
    if not history.arrivals:
        raise RecordingError(f"{recording.path} has no request: there is nothing to compare")
    objective = settings.objective(options)
    firsts = {
        c.name: replay(recording, policies=c.policies(), settings=c.settings).difference
        for c in contenders
    }
    own = Contender(SAME, recording.settings, recording.policies)
    played = [_play(contender, history, objective) for contender in (own, *contenders)]
    summaries = [_happened(history, objective), *(run.summary for run in played)]
    metrics = [history.metrics, *(run.metrics for run in played)]
    document = {
        **_about(options, recording, history),
        "first_differences": {
            name: None if first is None else asdict(first) for name, first in firsts.items()
        },
        "runs": [
            _run(summary, curves(seen)) for summary, seen in zip(summaries, metrics, strict=True)
        ],
    }
    answer = writing.Answer(
        document=document,
        table=lambda wide: _table(recording, history, firsts, summaries, wide=wide),
        names=lambda: [summary.name for summary in summaries],
        rows=lambda: {
            "first_differences": [
                {"policy": name, "step": None if first is None else first.step}
                for name, first in firsts.items()
            ],
            **run_rows(summaries),
        },
        page=lambda: comparison(document, cells(summaries, tenants=TENANTS_SHOWN)),
    )
    writing.write(options, answer)
    return 0


def _play(contender: Contender, history: Recalled, objective: Objective) -> Run:
    """The recorded requests and nodes under this policy. Nodes come and go as they did."""
    still = replace(contender.settings.autoscale, enabled=False)
    plan = Plan(
        name=contender.name,
        fleet=(),
        policies=contender.policies,
        world=WorldSettings(core=replace(contender.settings, autoscale=still)),
        terms=Terms(max_attempts=history.max_attempts, predict=history.predict),
        objective=objective,
        prepare=[history.prepare],
    )
    return simulate(plan, history.again())


def _happened(history: Recalled, objective: Objective) -> Summary:
    seen = history.metrics
    summary = summarise(seen, None, objective)
    summary.name = HAPPENED
    slots = sum(seen.series.slots)
    summary.utilisation = sum(seen.series.in_flight) / slots if slots else 0.0
    up = sum(max(0, min(life.ends, seen.ended_at) - life.begins) for life in history.lives)
    summary.node_hours = up / (3600 * SECOND)
    return summary


def _run(summary: Summary, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": summary.name, "summary": summary.as_dict(), **drawn}


def _about(options: argparse.Namespace, recording: Recording, history: Recalled) -> dict[str, Any]:
    return {
        "command": "replay",
        "file": str(recording.path),
        "workload": recording.path.name,
        "requests": len(history.arrivals),
        "nodes": f"{len({life.node_id for life in history.lives})} recorded nodes",
        "objective": settings.in_words(settings.objective(options)),
        "seed": recording.settings.seed,
    }


def _table(
    recording: Recording,
    history: Recalled,
    firsts: Mapping[str, Difference | None],
    summaries: Sequence[Summary],
    *,
    wide: bool,
) -> str:
    parts = [told(recording, history.replayed), ""]
    for name, first in firsts.items():
        if first is None:
            parts.append(f"{name} would have decided the same")
        else:
            parts.append(f"{name}: first other decision in {in_words(first, _ids(history))}")
    return "\n".join([*parts, "", table(summaries, tenants=None if wide else TENANTS_SHOWN)])


def _ids(history: Recalled) -> dict[int, str]:
    return history.replayed.requests
