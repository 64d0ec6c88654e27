"""How do operators look closer? Levels of the logs, of the scheduler and of agents, at run time."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import grpc

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import node_service_pb2, types_pb2
from scheduler_service import audit_log
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.outcomes import Reason
from scheduler_service.report.build import ReportBuilder
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc.admin_models import ANSWER_S, Find, able_session
from scheduler_service.rpc.asker import principal_of
from scheduler_service.rpc.node_commands import TooManyCommands
from scheduler_service.rpc.validate import Refused
from service_kit import logs

_LOGGER: Final = re.compile(r"[A-Za-z0-9_.]{1,128}")

Context = grpc.aio.ServicerContext[bytes, bytes]


class AdminLogs:
    """The call. `level`: the configured level of the scheduler's log."""

    def __init__(self, reports: ReportBuilder, find: Find, clock: Clock, level: str) -> None:
        self._reports = reports
        self._find = find
        self._clock = clock
        self._level = level

    async def set_log_level(
        self, request: pb.SetLogLevelRequest, context: Context
    ) -> pb.SetLogLevelResponse:
        """Of our own loggers; what others' libraries say stays as it is."""
        level, logger, why = request.level, request.logger, filters.reason(request.reason)
        if level and level not in logs.LEVELS:
            raise Refused(f"{level[:32]!r} is none of {', '.join(logs.LEVELS)}", field="level")
        if logger and not (_LOGGER.fullmatch(logger) and logger.startswith(logs.OURS)):
            raise Refused(f"a logger begins with {' or '.join(logs.OURS)}", field="logger")
        if logger == audit_log.LOGGER:
            raise Refused("what operators do is always logged", field="logger")
        answer, where = None, ""
        if request.node_id:
            answer, where = self._tell_agent(request), f" on {request.node_id}"
        else:
            level = level or self._level
            logs.set_level(level, logger)
        data = {
            "level": level or "as configured",
            "logger": f"{logger or 'all'}{where}",
            "reason": why,
        }
        # Before the agent answers: it does so also if the caller is gone, or late.
        self._reports.eventlog.tell(
            records.LOG_LEVEL_SET, self._clock.now(), principal=principal_of(context), data=data
        )
        if answer is not None:
            await _answered(answer, request.node_id)
        return pb.SetLogLevelResponse()

    def _tell_agent(self, request: pb.SetLogLevelRequest) -> asyncio.Future[types_pb2.Error | None]:
        """Send it as a command; return what will have its answer.

        Raises:
            Refused: there is no such node, or its agent cannot do it, or not now.
        """
        node, session = able_session(self._reports, self._find, request.node_id, "set_log_level")
        answer: asyncio.Future[types_pb2.Error | None] = asyncio.get_running_loop().create_future()

        def answered(error: types_pb2.Error | None) -> None:
            if not answer.done():
                answer.set_result(error)

        asked = node_service_pb2.SetLogLevel(level=request.level, logger=request.logger)
        try:
            session.commands.send(node_service_pb2.Command(set_log_level=asked), answered, _nothing)
        except TooManyCommands:
            text = f"the agent of {node.node_id!r} has too many commands to answer"
            raise Refused(text, reason=Reason.ENGINE_BUSY) from None
        return answer


async def _answered(answer: asyncio.Future[types_pb2.Error | None], node_id: str) -> None:
    """Wait until the agent has done it.

    Raises:
        Refused: it refuses, or does not answer.
    """
    try:
        error = await asyncio.wait_for(answer, ANSWER_S)
    except TimeoutError:
        text = f"the agent of {node_id!r} does not answer within {ANSWER_S:g} s"
        raise Refused(text, reason=Reason.ENGINE_BUSY) from None
    if error is not None:
        raise Refused(error.message, field="level", metadata=dict(error.metadata))


def _nothing() -> None:
    """Reports of the node say nothing of it."""
