"""What does an engine do, without a model? Takes its time, writes checkable text, fails on order.

It is the reference for tests and benchmarks. Two modes:

    static       a batch starts together and ends together, after
                 latency + latency_per_item * inputs + latency_per_token * longest output
    continuous   items join and leave; each takes
                 latency + latency_per_item + latency_per_token * its output

What happens when is decided in `simulated_turns.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.grace import wait_within
from node_agent.engines.interface import (
    EngineError,
    EngineStartError,
    Item,
    Load,
    ModelRefused,
    Sink,
)
from node_agent.engines.simulated_descriptor import describe, profile
from node_agent.engines.simulated_options import SimulatedModel, SimulatedOptions
from node_agent.engines.simulated_plan import plan_item
from node_agent.engines.simulated_run import Run
from node_agent.engines.simulated_turns import Turns

_MODEL_STATES = {
    node_service_pb2.ENGINE_HEALTH_STARTING: types_pb2.MODEL_STATE_LOADING,
    node_service_pb2.ENGINE_HEALTH_SERVING: types_pb2.MODEL_STATE_ACTIVE,
    node_service_pb2.ENGINE_HEALTH_DOWN: types_pb2.MODEL_STATE_UNLOADING,
}


class SimulatedEngine:
    """An engine of kind `simulated`."""

    def __init__(self, engine_id: str, options: SimulatedOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._models = {model.name: model for model in options.models}
        self._loading: dict[str, SimulatedModel] = {}
        self._profile = profile(options)
        self._health = node_service_pb2.ENGINE_HEALTH_STARTING
        self._turns = Turns(options)

    def describe(self) -> node_service_pb2.EngineDescriptor:
        models = {**self._models, **self._loading}
        return describe(self._engine_id, self._options, models.values())

    def load(self) -> Load:
        turns = self._turns
        load = Load(
            health=self._health,
            running=turns.running_inputs,
            waiting=turns.held_inputs - turns.running_inputs,
            model_states=dict.fromkeys(self._models, _MODEL_STATES[self._health]),
            profiles=dict.fromkeys(self._models, self._profile) if self._profile else {},
        )
        load.prefill_backlog_tokens = turns.unread_tokens()
        load.model_states.update(dict.fromkeys(self._loading, types_pb2.MODEL_STATE_LOADING))
        if turns.clock.is_stalled:
            load.health = node_service_pb2.ENGINE_HEALTH_STALLED
            load.message = "stalled on order"
        if self._options.kv_capacity_tokens:
            load.kv_utilization = min(1.0, turns.kv_tokens() / self._options.kv_capacity_tokens)
        return load

    async def start(self, sink: Sink) -> None:
        self._turns.start(sink)
        self._sink = sink
        if self._options.warm_up:
            await asyncio.sleep(self._options.warm_up)
        if self._health != node_service_pb2.ENGINE_HEALTH_STARTING:
            raise EngineStartError("the simulated engine was stopped while it warmed up")
        self._health = node_service_pb2.ENGINE_HEALTH_SERVING
        if self._options.stalled:
            self.stall()
        sink.changed()

    async def stop(self, grace_s: float) -> None:
        if self._health == node_service_pb2.ENGINE_HEALTH_DOWN:
            return
        self._health = node_service_pb2.ENGINE_HEALTH_DOWN
        if self._turns.runs and grace_s > 0:
            self._turns.emptied = asyncio.Event()
            await wait_within(self._turns.emptied, grace_s)
        self._turns.close(_unavailable("the engine was stopped"))

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:
        turns = self._turns
        now = turns.arrival()
        runs: list[Run] = []
        for item in items:
            if self._health != node_service_pb2.ENGINE_HEALTH_SERVING:
                turns.refuse(item, _unavailable("the engine does not serve", refused=True))
                continue
            plan = plan_item(item, self._options, self._models)
            if isinstance(plan, EngineError):
                turns.refuse(item, plan)
            else:
                runs.append(Run(item, plan, now))
        turns.admit(runs, atomic)

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        self._turns.cancel(dispatch_id, reason)

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Pretend to load it, for `load_time`. Options are those of a configured model."""
        try:
            loaded = SimulatedModel.model_validate({**options, "name": model})
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in fault["loc"])
            text = f"options of the model: {place}: {fault['msg']}"
            reason = types_pb2.ERROR_REASON_INVALID_ARGUMENT
            refusal = EngineError(reason=reason, message=text, field="options_json")
            raise ModelRefused(refusal) from error
        self._loading[model] = loaded
        self._sink.changed()
        try:
            await asyncio.sleep(self._options.load_time)
        finally:
            del self._loading[model]
        self._models[model] = loaded
        self._sink.changed()

    def why_not_unload(self, model: str) -> EngineError | None:  # noqa: ARG002
        """Any can be."""
        return None

    async def unload_model(self, model: str) -> None:
        """Forget it."""
        self._models.pop(model, None)
        self._sink.changed()

    def stall(self) -> None:
        """Become an engine that accepts and never answers. Its clock stands still."""
        if not self._turns.clock.is_stalled:
            self._turns.clock.stall()
            self._sink.changed()

    def go_on(self) -> None:
        """End a stall; what was running goes on where it was."""
        if self._turns.clock.is_stalled:
            self._turns.clock.go_on()
            self._sink.changed()
            self._turns.clock.ring_soon()


def _unavailable(message: str, *, refused: bool = False) -> EngineError:
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, message=message, refused=refused
    )
