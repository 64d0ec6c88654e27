"""Which commands was an agent given, and who waits for its answers?

A command is numbered within its session. Its answer comes when it is done, which may take minutes;
meanwhile the reports show how it stands. With the session all that was asked in it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.rpc import status

OPEN_MAX: Final = 64  # commands of one session that are not answered

Answered = Callable[[types_pb2.Error | None], None]  # None: done


class TooManyCommands(Exception):
    """The agent has not answered so many."""


@dataclass(slots=True)
class _Open:
    answered: Answered
    reported: Callable[[], None]


class CommandQueue:
    """The commands of one session. `wake` tells its writer that some wait to be sent."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._last_id = 0
        self._open: dict[int, _Open] = {}
        self.waiting: list[pb.Command] = []

    def send(self, command: pb.Command, answered: Answered, reported: Callable[[], None]) -> None:
        """Have a command sent; its number is filled in. `answered` is called once, `reported` at
        each report of the agent until then.

        Raises:
            TooManyCommands: and it was not sent.
        """
        if len(self._open) >= OPEN_MAX:
            raise TooManyCommands
        self._last_id += 1
        command.command_id = self._last_id
        self._open[command.command_id] = _Open(answered, reported)
        self.waiting.append(command)
        self._wake()

    def take(self) -> list[pb.Command]:
        """Those to be sent now."""
        taken, self.waiting = self.waiting, []
        return taken

    def answer(self, results: Iterable[pb.CommandResult]) -> None:
        """The agent says how they went; what was not asked is ignored."""
        for result in results:
            known = self._open.pop(result.command_id, None)
            if known is not None:
                known.answered(result.error if result.HasField("error") else None)

    def reported(self) -> None:
        """The agent has told of its load."""
        for known in list(self._open.values()):
            known.reported()

    def lose(self) -> None:
        """The session is over."""
        lost, self._open = self._open, {}
        text = "the agent's session ended before it answered; `batchyard nodes show` tells"
        for known in lost.values():
            known.answered(status.error(Reason.NODE_LOST, text))
