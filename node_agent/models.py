"""How are models loaded and unloaded while the agent works, when the scheduler says so?

    AVAILABLE --load--> LOADING --first request answered--> ACTIVE --unload--> UNLOADING --> gone
                           | failed, or its time is up: gone

What is LOADING or ACTIVE, the engine says; what is UNLOADING, this does: no new work of the model,
then the core waits until nothing of it is held (`core/closings.py`), and only then the engine is
asked to drop it. The answer to a command comes when it is done; meanwhile the reports show it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import events as ev
from node_agent.engine_care import EngineCare
from node_agent.engines.interface import EngineError, ModelKeeper, ModelRefused
from node_agent.rpc import durations
from node_agent.rpc.errors import error

log = logging.getLogger("node_agent.models")

STOP_S = 5.0  # for an engine to let go of what it was told to cancel

Answer = Callable[[types.Error | None], None]  # None: done
Key = tuple[str, str]  # engine id, model


class Models:
    """The models of one agent. `post` takes events to the core."""

    def __init__(
        self,
        cares: Mapping[str, EngineCare],
        post: Callable[[ev.Event], None],
        *,
        load_timeout_s: float,
        unload_grace_s: float,
    ) -> None:
        self._cares = cares
        self._post = post
        self._load_timeout_s = load_timeout_s
        self._unload_grace_s = unload_grace_s
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._drained: dict[Key, asyncio.Event] = {}

    def load(self, action: node.LoadModel, limit_s: float | None, answer: Answer) -> None:
        """Begin to load a model; `limit_s`: of the command, None: the agent's own."""
        work = self._load(action, self._load_timeout_s if limit_s is None else limit_s)
        self._begin((action.engine_id, action.model), work, answer)

    def unload(self, action: node.UnloadModel, grace_s: float | None, answer: Answer) -> None:
        """Begin to unload a model; `grace_s`: for what runs, None: the agent's own."""
        work = self._unload(action, self._unload_grace_s if grace_s is None else grace_s)
        self._begin((action.engine_id, action.model), work, answer)

    def on_drained(self, engine_id: str, model: str) -> None:
        """The core holds nothing of it any more."""
        drained = self._drained.get((engine_id, model))
        if drained is not None:
            drained.set()

    async def stop(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: Key, work: Coroutine[Any, Any, None], answer: Answer) -> None:
        if key in self._tasks:
            work.close()
            busy = types.ERROR_REASON_ENGINE_BUSY
            answer(error(busy, f"model {key[1]!r} is being loaded or unloaded already"))
            return
        self._tasks[key] = asyncio.create_task(self._run(key, work, answer), name=f"model {key[1]}")

    async def _run(self, key: Key, work: Coroutine[Any, Any, None], answer: Answer) -> None:
        fields = {"engine_id": key[0], "model": key[1]}
        fault: types.Error | None = None
        try:
            await work
        except ModelRefused as refused:
            fault = _written(refused.error)
        except Exception as failure:  # an engine's own bug: the agent and its other work go on
            log.exception("an engine's model", extra={"event": "engine_failed", **fields})
            text = f"{type(failure).__name__}: {failure}"
            fault = error(types.ERROR_REASON_ENGINE_ERROR, text)
        finally:
            del self._tasks[key]
        if fault is not None:
            log.warning("model: %s", fault.message, extra={"event": "model_failed", **fields})
        answer(fault)

    async def _load(self, action: node.LoadModel, limit_s: float) -> None:
        care, keeper = self._keeper(action.engine_id, "load")
        options = _options(action.options_json)
        if not action.model:
            raise _refusal(types.ERROR_REASON_INVALID_ARGUMENT, "a model has a name", "model")
        if care.load().model_states.get(action.model) == types.MODEL_STATE_ACTIVE:
            return
        try:
            async with asyncio.timeout(limit_s):
                await keeper.load_model(action.model, options)
        except TimeoutError:
            text = f"model {action.model!r} did not serve within {limit_s:g} s"
            raise _refusal(types.ERROR_REASON_ENGINE_STALLED, text) from None
        finally:
            care.changed()

    async def _unload(self, action: node.UnloadModel, grace_s: float) -> None:
        care, keeper = self._keeper(action.engine_id, "unload")
        model = action.model
        held = [described.model for described in care.engine.describe().models]
        if model not in held:
            text = f"model {model!r} is not loaded; the engine has: {', '.join(held) or 'none'}"
            raise _refusal(types.ERROR_REASON_MODEL_NOT_FOUND, text, "model")
        fault = keeper.why_not_unload(model)
        if fault is not None:
            raise ModelRefused(fault)
        key = (action.engine_id, model)
        drained = self._drained[key] = asyncio.Event()
        care.closing.add(model)
        self._post(ev.ModelClosed(action.engine_id, model, int(grace_s * 1e9)))
        care.changed()
        try:
            async with asyncio.timeout(grace_s + STOP_S):
                await drained.wait()
            async with asyncio.timeout(self._load_timeout_s):
                await keeper.unload_model(model)
        except TimeoutError:
            text = f"model {model!r} could not be unloaded: its engine does not let go of it"
            raise _refusal(types.ERROR_REASON_ENGINE_STALLED, text) from None
        finally:
            del self._drained[key]
            care.closing.discard(model)
            self._post(ev.ModelReopened(action.engine_id, model))
            care.changed()

    def _keeper(self, engine_id: str, verb: str) -> tuple[EngineCare, ModelKeeper]:
        care = self._cares.get(engine_id)
        if care is None:
            text = f"there is no engine {engine_id!r}; there are: {', '.join(self._cares)}"
            raise _refusal(types.ERROR_REASON_RESOURCE_NOT_FOUND, text, "engine_id")
        if not isinstance(care.engine, ModelKeeper):
            text = f"an engine of kind {care.descriptor.kind!r} cannot {verb} models"
            raise _refusal(types.ERROR_REASON_UNSUPPORTED_FEATURE, text)
        if not care.serving:
            why = care.load().message or "it starts"
            text = f"the engine does not serve now: {why}"
            raise _refusal(types.ERROR_REASON_ENGINE_UNAVAILABLE, text)
        return care, care.engine


def limit_of(command: node.Command) -> float | None:
    """Its time limit in seconds; None: the agent's own."""
    return durations.to_s(command.timeout) if command.HasField("timeout") else None


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text or "{}")
    except ValueError as fault:
        text = f"the options are not JSON: {fault}"
        raise _refusal(types.ERROR_REASON_INVALID_ARGUMENT, text, "options_json") from None
    if not isinstance(options, dict):
        text = "the options are not a JSON object"
        raise _refusal(types.ERROR_REASON_INVALID_ARGUMENT, text, "options_json")
    return options


def _refusal(reason: types.ErrorReason, message: str, field: str = "") -> ModelRefused:
    return ModelRefused(EngineError(reason=reason, message=message, field=field))


def _written(fault: EngineError) -> types.Error:
    return error(fault.reason, fault.message, field=fault.field, metadata=fault.metadata)
