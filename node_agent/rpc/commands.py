"""How is an administrative command of the scheduler carried out?

Only what the Hello's features name: the slots of an engine, log levels, and models.
"""

from __future__ import annotations

from collections.abc import Callable

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import events as ev
from node_agent.driver import Driver
from node_agent.models import Models, limit_of
from node_agent.rpc.errors import error
from service_kit import logs


class Commands:
    """Carries out commands: at once, but for models, which take their time."""

    def __init__(self, driver: Driver, models: Models, log_level: str) -> None:
        self._driver = driver
        self._models = models
        self._log_level = log_level

    def run(self, command: node.Command, reply: Callable[[node.CommandResult], None]) -> None:
        """Do it, and say how it went when it is done. Never raises."""

        def answer(fault: types.Error | None) -> None:
            reply(node.CommandResult(command_id=command.command_id, error=fault))

        action = command.WhichOneof("action")
        if action == "load_model":
            self._models.load(command.load_model, limit_of(command), answer)
        elif action == "unload_model":
            self._models.unload(command.unload_model, limit_of(command), answer)
        elif action == "set_slots":
            answer(self._set_slots(command.set_slots))
        elif action == "set_log_level":
            answer(self._set_log_level(command.set_log_level))
        else:
            text = "this agent does not know what was asked of it: it is older than the scheduler"
            reason = types.ERROR_REASON_UNSUPPORTED_FEATURE
            answer(error(reason, text, metadata={"feature": "unknown"}))

    def _set_slots(self, action: node.SetSlots) -> types.Error | None:
        care = self._driver.engines.get(action.engine_id)
        if care is None:
            return error(
                types.ERROR_REASON_RESOURCE_NOT_FOUND,
                f"there is no engine {action.engine_id!r}",
                field="set_slots.engine_id",
                metadata={"resource": action.engine_id},
            )
        if action.slots > care.spec.slots:
            return error(
                types.ERROR_REASON_INVALID_ARGUMENT,
                f"the engine has {care.spec.slots} slots: ask for at most that",
                field="set_slots.slots",
            )
        self._driver.post(ev.SlotsLimited(action.engine_id, action.slots))
        self._driver.outbox.need_descriptor()
        return None

    def _set_log_level(self, action: node.SetLogLevel) -> types.Error | None:
        level = action.level or self._log_level
        if level not in logs.LEVELS:
            return error(
                types.ERROR_REASON_INVALID_ARGUMENT,
                f"{level!r} is not a level; there are: {', '.join(logs.LEVELS)}",
                field="set_log_level.level",
            )
        logs.set_level(level, action.logger)
        return None
