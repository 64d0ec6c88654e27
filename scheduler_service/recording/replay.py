"""Does a core decide the same again? Run a recording through one, and compare step by step.

The first difference ends it: from there on the recorded results answer dispatches that this core
has not made. What another policy would have led to is a question for the simulator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_service.core.commands import Command
from scheduler_service.core.events import PoliciesChanged
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.records import Record
from scheduler_service.core.scheduler import Scheduler
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import Duration
from scheduler_service.recording.decisions import describe
from scheduler_service.recording.reader import Recording, Step
from scheduler_service.recording.scheduler import hear


class Observer(Protocol):
    """Looks on while a recording is run."""

    def before(self, step: Step, core: Scheduler) -> None:
        """What it is about to hear."""
        ...

    def after(
        self, step: Step, core: Scheduler, commands: Sequence[Command], records: Sequence[Record]
    ) -> None:
        """What it decided."""
        ...


@dataclass(slots=True)
class Difference:
    """The first step that went another way."""

    step: int
    after: Duration  # since the first step
    recorded: list[str]  # decisions that only the recording has
    replayed: list[str]  # that only this core made


@dataclass(slots=True)
class Replayed:
    """How it went."""

    steps: int = 0
    decisions: int = 0  # that were equal
    lasted: Duration = 0
    requests: dict[int, str] = field(default_factory=dict)  # ids by number
    difference: Difference | None = None


def replay(
    recording: Recording,
    *,
    policies: PolicySet | None = None,
    settings: CoreSettings | None = None,
    observer: Observer | None = None,
) -> Replayed:
    """Run it, with its own policies and settings unless others are given: then those that operators
    put in force meanwhile are passed over.

    Raises:
        RecordingError: it cannot be read, or not be run by this version.
    """
    own = policies is None and settings is None
    core = Scheduler(settings or recording.settings, policies or recording.policies())
    done = Replayed()
    started = None
    for step in recording.steps():
        if step.anew:
            core = core.successor()
        if not own:
            step.happened[:] = [e for e in step.happened if type(e) is not PoliciesChanged]
        started = step.at if started is None else started
        done.steps, done.lasted = step.number, step.at - started
        for event in step.happened:
            for request in getattr(event, "requests", ()):
                done.requests[request.rid] = request.request_id
        if observer is not None:
            observer.before(step, core)
        decided = _run(core, step, observer)
        expected = [f"fault {step.fault}"] if step.fault else step.decisions
        if decided != expected:
            done.difference = Difference(step.number, done.lasted, *_apart(expected, decided))
            break
        done.decisions += len(expected)
    return done


def _run(core: Scheduler, step: Step, observer: Observer | None) -> list[str]:
    if not hear(core.relay, step.heard):
        return ["an attempt spoke that this core had silenced"]
    try:
        commands = core.step(step.at, step.happened)
    except Exception as fault:  # a recorded fault of the core comes again, or it is a difference
        return [f"fault {type(fault).__name__}"]
    records = core.take_records()
    if observer is not None:
        observer.after(step, core, commands, records)
    return describe(commands)


def _apart(expected: list[str], decided: list[str]) -> tuple[list[str], list[str]]:
    """Without what both begin with."""
    same = sum(
        1
        for _ in itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(expected, decided, strict=False)
        )
    )
    return expected[same:], decided[same:]
