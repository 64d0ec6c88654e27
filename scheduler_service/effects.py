"""How are the core's commands carried out? A table from command to effect; nothing waits here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scheduler_service.core import commands as cmd
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.ports import NodeSession
from scheduler_service.rpc.results import ResultBuilder

log = logging.getLogger(__name__)

Scale = Callable[[cmd.RequestScale], None]
Remember = Callable[[cmd.RememberDeaths], None]


class Effects:
    """Carries out commands through the node sessions, the book of calls and the scaler."""

    def __init__(self, results: ResultBuilder, scale: Scale | None = None) -> None:
        self.sessions: dict[tuple[str, int], NodeSession] = {}
        self.book: Book | None = None  # set by the composition root
        self.scale = scale
        self.remember: Remember | None = None  # set by the composition root
        # Does it once all results of job items that have come are stored; None: there are no jobs.
        self.after_results: Callable[[Callable[[], None]], None] | None = None
        self._acknowledgements: list[cmd.AcknowledgeResults] = []  # of this step
        self._results = results
        self._table: dict[type, Callable[[Any], None]] = {
            cmd.AcceptRequest: self._accept,
            cmd.DispatchBatch: self._dispatch,
            cmd.CancelAttempts: self._cancel,
            cmd.StartOutput: self._start_output,
            cmd.RememberDeaths: self._remember_deaths,
            cmd.WelcomeNode: self._welcome,
            cmd.CloseSession: self._close,
            cmd.PingNode: self._ping,
            cmd.AcknowledgeResults: self._acknowledge,
            cmd.DrainNode: self._drain,
            cmd.RequestScale: self._scale,
        }

    def execute(self, commands: Sequence[cmd.Command]) -> None:
        """Carry out, in order, but answers last: building them must not keep an engine waiting.
        Where work goes out, they come after the sessions' writers have had their turn of the loop.
        One command that fails does not stop the others.
        """
        others = [c for c in commands if type(c) is not cmd.FinishRequest]
        self._carry_out(others)
        if len(others) == len(commands):
            if self._acknowledgements:
                self._acknowledge_stored()
            return
        answers = [c for c in commands if type(c) is cmd.FinishRequest]
        if any(type(c) is cmd.DispatchBatch for c in others):
            asyncio.get_running_loop().call_soon(self._answer, answers)
        else:
            self._answer(answers)

    def _answer(self, answers: Sequence[cmd.FinishRequest]) -> None:
        assert self.book is not None
        finish, results = self.book.finish, self._results
        for command in answers:
            try:
                finish(command, results)
            except Exception:  # as in `_carry_out`
                log.exception("a request was not answered", extra={"event": "effect_failed"})
        if self._acknowledgements:
            self._acknowledge_stored()

    def _carry_out(self, commands: Sequence[cmd.Command]) -> None:
        table = self._table
        for command in commands:
            try:
                table[type(command)](command)
            except Exception:  # an edge's fault must not stop the writer of the core
                log.exception("%s failed", type(command).__name__, extra={"event": "effect_failed"})

    def _session(self, node_id: str, epoch: int) -> NodeSession | None:
        """The stream, unless it ended meanwhile (the core will hear of that)."""
        return self.sessions.get((node_id, epoch))

    def _accept(self, command: cmd.AcceptRequest) -> None:
        entry = command.request.context
        if entry is not None:
            entry.accept(command)

    def _start_output(self, command: cmd.StartOutput) -> None:
        entry = command.request.context
        if entry is not None and command.attempt.dispatch_id in command.request.live:
            entry.begin(command.attempt)

    def _dispatch(self, command: cmd.DispatchBatch) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.dispatch(command.batch)

    def _cancel(self, command: cmd.CancelAttempts) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.cancel(command.dispatch_ids, command.reason)

    def _welcome(self, command: cmd.WelcomeNode) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.welcome(command.abandon, command.adopted)

    def _close(self, command: cmd.CloseSession) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.close(command)

    def _ping(self, command: cmd.PingNode) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.ping()

    def _acknowledge(self, command: cmd.AcknowledgeResults) -> None:
        if self.after_results is None:
            self._acknowledge_now(command)
        else:
            self._acknowledgements.append(command)

    def _acknowledge_stored(self) -> None:
        """Once the results of this step are where they are kept, their agents may forget them."""
        commands, self._acknowledgements = self._acknowledgements, []
        assert self.after_results is not None
        for command in commands:
            self.after_results(partial(self._acknowledge_now, command))

    def _acknowledge_now(self, command: cmd.AcknowledgeResults) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.acknowledge(command.count)

    def _drain(self, command: cmd.DrainNode) -> None:
        session = self._session(command.node_id, command.epoch)
        if session is not None:
            session.drain(command)

    def _remember_deaths(self, command: cmd.RememberDeaths) -> None:
        if self.remember is not None:
            self.remember(command)

    def _scale(self, command: cmd.RequestScale) -> None:
        if self.scale is not None:
            self.scale(command)
