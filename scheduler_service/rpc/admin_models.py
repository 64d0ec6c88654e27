"""How do operators have models loaded and unloaded? By commands to the node's agent.

The call returns as soon as the agent has begun, which its report shows, or has refused; how it ends
is an event. Both the wish, with who asked and why, and the end stand in the event log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, Protocol

import grpc

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import node_service_pb2, report_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import Node
from scheduler_service.report.build import ReportBuilder
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc.asker import principal_of
from scheduler_service.rpc.node_commands import CommandQueue, TooManyCommands
from scheduler_service.rpc.validate import Refused

ANSWER_S: Final = 10.0  # for an agent to begin, or to refuse
OPTIONS_MAX: Final = 65_536  # bytes
MODEL_MAX: Final = 256  # characters

Context = grpc.aio.ServicerContext[bytes, bytes]


class Commanded(Protocol):
    """A node's session, as far as commands go."""

    @property
    def features(self) -> Sequence[str]:
        """What its agent can do."""

    @property
    def report(self) -> node_service_pb2.NodeReport | None:
        """The last one."""

    @property
    def commands(self) -> CommandQueue:
        """Where commands go."""


Find = Callable[[str, int], Commanded | None]  # by node id and epoch; None: the stream is gone


def able_session(
    reports: ReportBuilder, find: Find, node_id: str, feature: str
) -> tuple[Node, Commanded]:
    """A live node, and its session.

    Raises:
        Refused: there is no such node, or its agent cannot do this.
    """
    node = filters.find_node(reports.state, node_id)
    session = find(node.node_id, node.epoch) if node.alive else None
    if session is None:
        raise Refused(
            f"node {node.node_id!r} is not connected; only a live node can be changed",
            reason=Reason.RESOURCE_NOT_FOUND,
            metadata={"resource": f"node/{node.node_id}"},
        )
    if feature not in session.features:
        raise Refused(
            f"the agent of {node.node_id!r} cannot do this: it is older than this scheduler",
            reason=Reason.UNSUPPORTED_FEATURE,
            metadata={"feature": feature},
        )
    return node, session


class AdminModels:
    """The calls."""

    def __init__(self, reports: ReportBuilder, find: Find, clock: Clock) -> None:
        self._reports = reports
        self._find = find
        self._clock = clock

    async def load_model(
        self, request: pb.LoadModelRequest, context: Context
    ) -> pb.LoadModelResponse:
        """Begin to load a model on an engine."""
        _check_options(request.options_json)
        task = self._task(request, "load_model", records.MODEL_LOAD, records.MODEL_LOADED)
        command = node_service_pb2.Command(
            load_model=node_service_pb2.LoadModel(
                engine_id=task.engine_id, model=request.model, options_json=request.options_json
            )
        )
        return pb.LoadModelResponse(node=await self._ask(task, command, request.reason, context))

    async def unload_model(
        self, request: pb.UnloadModelRequest, context: Context
    ) -> pb.UnloadModelResponse:
        """Begin to unload a model: no new work of it, then it goes."""
        task = self._task(request, "unload_model", records.MODEL_UNLOAD, records.MODEL_UNLOADED)
        command = node_service_pb2.Command(
            unload_model=node_service_pb2.UnloadModel(engine_id=task.engine_id, model=request.model)
        )
        return pb.UnloadModelResponse(node=await self._ask(task, command, request.reason, context))

    def _task(
        self,
        request: pb.LoadModelRequest | pb.UnloadModelRequest,
        feature: str,
        kind: str,
        done: str,
    ) -> _Task:
        """What is asked, of whom.

        Raises:
            Refused: there is no such node or engine, or it cannot do this.
        """
        if not 1 <= len(request.model) <= MODEL_MAX:
            raise Refused(f"a model has a name of 1 to {MODEL_MAX} characters", field="model")
        node, session = able_session(self._reports, self._find, request.node_id, feature)
        return _Task(node, session, _engine(node, request.engine_id), request.model, kind, done)

    async def _ask(
        self, task: _Task, command: node_service_pb2.Command, reason: str, context: Context
    ) -> report_pb2.Node:
        """Send the command; return the node when its agent has begun.

        Raises:
            Refused: the agent refused, or does not answer.
        """
        why = filters.reason(reason)
        answer: asyncio.Future[types_pb2.Error | None] = asyncio.get_running_loop().create_future()
        begun = asyncio.Event()

        def answered(error: types_pb2.Error | None) -> None:
            self._tell_end(task, error)
            if not answer.done():
                answer.set_result(error)

        def reported() -> None:
            if _has_begun(task):
                begun.set()

        self._tell(task.kind, task, principal=principal_of(context), reason=why)
        try:
            task.session.commands.send(command, answered, reported)
        except TooManyCommands:
            text = f"the agent of {task.node.node_id!r} has too many commands to answer"
            raise Refused(text, reason=Reason.ENGINE_BUSY) from None
        error = await _first(answer, begun, task)
        if error is not None:
            raise Refused(
                error.message,
                field=error.field,
                reason=_reason(error),
                metadata=dict(error.metadata),
            )
        node = filters.find_node(self._reports.state, task.node.node_id)
        return filters.own(self._reports.node(node, self._reports.window()))

    def _tell_end(self, task: _Task, error: types_pb2.Error | None) -> None:
        if error is None:
            self._tell(task.done, task)
        else:
            self._tell(records.MODEL_FAILED, task, message=error.message)

    def _tell(self, kind: str, task: _Task, *, principal: str = "", **data: str) -> None:
        eventlog, node_id = self._reports.eventlog, task.node.node_id
        told: dict[str, Any] = {"engine": task.engine_id, **data}
        record = Record(kind, self._clock.now(), node_id=node_id, pool=task.model, data=told)
        with eventlog.asked_by(principal, kind, node_id) if principal else nullcontext():
            eventlog([record])


class _Task:
    """One command, and what its events are called."""

    __slots__ = ("done", "engine_id", "kind", "model", "node", "session")

    def __init__(
        self, node: Node, session: Commanded, engine_id: str, model: str, kind: str, done: str
    ) -> None:
        self.node = node
        self.session = session
        self.engine_id = engine_id
        self.model = model
        self.kind = kind
        self.done = done


_LOADING: Final = (types_pb2.MODEL_STATE_LOADING, types_pb2.MODEL_STATE_ACTIVE)


def _has_begun(task: _Task) -> bool:
    """Whether the node's report shows it."""
    report = task.session.report
    states = {
        model.model: model.state
        for engine in (report.engines if report is not None else ())
        if engine.engine_id == task.engine_id
        for model in engine.models
    }
    if task.kind == records.MODEL_LOAD:
        return states.get(task.model) in _LOADING
    return states.get(task.model) == types_pb2.MODEL_STATE_UNLOADING or task.model not in states


async def _first(
    answer: asyncio.Future[types_pb2.Error | None], begun: asyncio.Event, task: _Task
) -> types_pb2.Error | None:
    """Wait until it is answered, or has begun; the error that it is answered with.

    Raises:
        Refused: neither, for too long.
    """
    seen = asyncio.ensure_future(begun.wait())
    try:
        await asyncio.wait((answer, seen), timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        seen.cancel()
    if answer.done():
        return answer.result()
    if begun.is_set():
        return None
    raise Refused(
        f"the agent of {task.node.node_id!r} has not begun within {ANSWER_S:g} s; its events tell",
        reason=Reason.ENGINE_UNAVAILABLE,
    )


def _engine(node: Node, engine_id: str) -> str:
    """The engine that is meant.

    Raises:
        Refused: the node has no such engine, or several and none was named.
    """
    names = ", ".join(node.engines)
    if not engine_id and len(node.engines) == 1:
        return next(iter(node.engines))
    if not engine_id:
        raise Refused(f"the node has several engines, name one: {names}", field="engine_id")
    if engine_id not in node.engines:
        raise Refused(
            f"node {node.node_id!r} has no engine {engine_id!r}; there is: {names}",
            field="engine_id",
            reason=Reason.RESOURCE_NOT_FOUND,
            metadata={"resource": f"engine/{engine_id}"},
        )
    return engine_id


def _check_options(text: str) -> None:
    if len(text.encode()) > OPTIONS_MAX:
        raise Refused(f"options have at most {OPTIONS_MAX} bytes", field="options_json")
    try:
        options = json.loads(text or "{}")
    except (ValueError, RecursionError) as fault:
        raise Refused(f"the options are not JSON: {fault}", field="options_json") from None
    if not isinstance(options, dict):
        raise Refused("the options are not a JSON object", field="options_json")


def _reason(error: types_pb2.Error) -> Reason:
    try:
        return Reason(error.reason)
    except ValueError:  # of an agent that is newer than this
        return Reason.ENGINE_ERROR
