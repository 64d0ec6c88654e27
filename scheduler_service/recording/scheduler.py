"""A core whose inputs and decisions are written down.

What a core decides follows from its settings, its policies, its events, the instants of its steps,
and from which attempt said its first words when: output goes from the edge through the relay, past
`step`. So lanes note the first of each (choice, channel), and the next step's line has them before
its events. Later words change offsets, which decide nothing.

A plain `Scheduler` is used where nothing is recorded: then all this costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

from scheduler_service.core import events as ev
from scheduler_service.core.commands import Command
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.relay import Lane, Output, Relay
from scheduler_service.core.scheduler import Scheduler
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import Instant
from scheduler_service.recording import codec, policies
from scheduler_service.recording.decisions import describe
from scheduler_service.recording.file import RecordingFile

FORMAT: Final = "batchyard-recording"
VERSION: Final = 1

Heard = tuple[int, int, int, int]  # dispatch id, choice, channel, where its text now ends
_CHANNELS: Final = 1 << 12  # as the relay has it


class RecordedLane(Lane):
    """Notes its first words on each channel."""

    __slots__ = ("heard",)
    heard: list[Heard]

    def accept(self, choice: int, channel: int, offset: int, length: int, tokens: int) -> int:
        """As `Lane` has it."""
        offsets, key = self.output.offsets, choice * _CHANNELS + channel
        had, spoke = offsets.get(key, 0), self.spoke
        verdict = super().accept(choice, channel, offset, length, tokens)
        if verdict >= 0 and (not spoke or (not had and offsets.get(key, 0))):
            self.heard.append((self.dispatch_id, choice, channel, offsets.get(key, 0)))
        return verdict


class RecordedRelay(Relay):
    """Opens lanes that note."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Heard] = []

    def open(self, dispatch_id: int, output: Output, attempt: Any, *, sole: bool) -> None:
        """As `Relay` has it."""
        super().open(dispatch_id, output, attempt, sole=sole)
        lane = RecordedLane(dispatch_id, output, attempt, self.fresh)
        lane.heard = self.heard
        self.lanes[dispatch_id] = lane


def hear(relay: Relay, heard: Sequence[Heard]) -> bool:
    """Say the same words again; False: somebody may not speak any more who then could."""
    for dispatch_id, choice, channel, end in heard:
        lane = relay.lanes.get(dispatch_id)
        if lane is None:
            return False
        had = lane.output.offsets.get(choice * _CHANNELS + channel, 0)
        if lane.accept(choice, channel, had, max(0, end - had), 0) < 0:
            return False
    return True


class RecordingScheduler(Scheduler):
    """Writes its settings at first, then a line per step: [instant, events, heard, decisions]."""

    def __init__(
        self,
        settings: CoreSettings,
        policy_set: PolicySet,
        file: RecordingFile,
        *,
        goes_on: bool = False,
    ) -> None:
        """`goes_on`: the file has its head already.

        Raises:
            UnknownPolicyError: a policy has no name and cannot be recorded.
        """
        super().__init__(settings, policy_set)
        self._file = file
        self._relay = RecordedRelay()
        self.state.relay = self._relay
        if not goes_on:
            head = {
                "format": FORMAT,
                "version": VERSION,
                "program": _program(),
                "settings": codec.encode(settings),
                **policies.encode(policy_set),
            }
            file.write(head, 0)

    def step(self, now: Instant, happened: Sequence[ev.Event]) -> Sequence[Command]:
        """As `Scheduler` has it, and one line."""
        heard = list(self._relay.heard)
        self._relay.heard.clear()
        if self._file.over:
            return super().step(now, happened)
        inputs = self._inputs(now, happened, heard)
        try:
            commands = super().step(now, happened)
        except Exception as fault:
            self._file.write([*inputs, {"fault": type(fault).__name__}], now)
            raise
        self._write([*inputs, commands], now)
        return commands

    def successor(self) -> Scheduler:
        """Goes on recording, in the same file."""
        state = self.state
        self._file.write({"successor": True}, state.now)
        fresh = RecordingScheduler(state.settings, state.policies, self._file, goes_on=True)
        fresh.state.skip_ids(state)
        return fresh

    def _inputs(
        self, now: Instant, happened: Sequence[ev.Event], heard: Sequence[Heard]
    ) -> list[Any]:
        """Before the step, which changes requests."""
        try:
            return [now, [codec.encode_event(event) for event in happened], heard]
        except Exception as fault:  # what watches must not stop what it watches
            self._file.stop(f"{type(fault).__name__}: {fault}")
            return [now, [], heard]

    def _write(self, line: list[Any], now: Instant) -> None:
        try:
            line[-1] = describe(line[-1])
            self._file.write(line, now)
        except Exception as fault:  # as above
            self._file.stop(f"{type(fault).__name__}: {fault}")


def _program() -> str:
    """The version that records, for people."""
    try:
        return metadata.version("batchyard")
    except metadata.PackageNotFoundError:
        return ""
