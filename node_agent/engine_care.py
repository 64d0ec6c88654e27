"""Is this engine up, what can it do, and what did it just say?

One per engine: it starts and stops the engine, is its `Sink`, and turns what it says into events of
the core.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import clock
from node_agent.core import EngineSpec, Held
from node_agent.core import events as ev
from node_agent.core.slots import MANY_ENDS
from node_agent.engines.interface import Engine, EngineStartError, Load, Parent, Result
from node_agent.gpu_owners import Place
from node_agent.rpc.results import is_complete
from node_agent.service_times import ServiceTimes

log = logging.getLogger("node_agent.engine")


class EngineListener(Protocol):
    """Who hears of it: the driver."""

    def post(self, *events: ev.Event) -> None:
        """Something happened."""

    def output(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """An item spoke."""

    def output_extra(
        self, dispatch_id: int, choice: int, channel: int, extra: types.DeltaExtra
    ) -> None:
        """An item's rare row."""

    def together(self) -> AbstractContextManager[None]:
        """What is posted inside happened in one moment."""
        ...

    def held(self, dispatch_id: int) -> Held | None:
        """The item, while the agent cares for it."""

    def engine_changed(self, engine_id: str, *, descriptor: bool) -> None:
        """Health changed, or (`descriptor`) what the engine is."""


class EngineCare:
    """One engine in the agent's care."""

    def __init__(self, engine_id: str, engine: Engine) -> None:
        self.engine_id = engine_id
        self.engine = engine
        self.descriptor = engine.describe()
        self.service_times = ServiceTimes()
        self.started = False
        self.start_error = ""
        self.place = Place()  # where it runs
        self.closing: set[str] = set()  # models that are to be unloaded
        self._listener: EngineListener | None = None

    @property
    def spec(self) -> EngineSpec:
        """What the core must know."""
        described = self.descriptor
        has_capacity = described.HasField("kv_capacity_tokens")
        return EngineSpec(
            engine_id=self.engine_id,
            slots=max(1, described.slots),
            look_ahead=described.look_ahead,
            max_batch_size=described.max_batch_size,
            static=described.mode == node.ENGINE_MODE_STATIC,
            token_capacity=described.kv_capacity_tokens if has_capacity else None,
        )

    @property
    def serving(self) -> bool:
        """Whether it takes work now."""
        return self.started and self.engine.load().health == node.ENGINE_HEALTH_SERVING

    def load(self) -> Load:
        """Load and health, before, while and after it could start."""
        load = self.engine.load()
        if self.start_error:
            load.health, load.message = node.ENGINE_HEALTH_DOWN, self.start_error
        elif not self.started and load.health == node.ENGINE_HEALTH_SERVING:
            load.health = node.ENGINE_HEALTH_STARTING
        for model in self.closing:
            load.model_states[model] = types.MODEL_STATE_UNLOADING
        return load

    async def start(self, listener: EngineListener) -> None:
        """Start the engine and tell the listener how it went. Never raises."""
        self._listener = listener
        begun_ns = clock.now_ns()
        try:
            await self.engine.start(self)
        except EngineStartError as fault:
            self._start_failed(str(fault))
            return
        except Exception as fault:  # an engine's own bug must not take the agent down silently
            log.exception(
                "engine start raised", extra={"event": "engine_failed", "engine_id": self.engine_id}
            )
            self._start_failed(f"{type(fault).__name__}: {fault}")
            return
        self.started = True
        fields = {
            "event": "engine_ready",
            "engine_id": self.engine_id,
            "duration_ms": (clock.now_ns() - begun_ns) // 1_000_000,
        }
        log.info("engine is ready", extra=fields)
        self.changed()

    def _start_failed(self, why: str) -> None:
        self.start_error = why
        fields = {"event": "engine_failed", "engine_id": self.engine_id, "reason": why}
        log.error("engine cannot serve", extra=fields)
        self.changed()

    async def stop(self, grace_s: float) -> None:
        """Stop the engine; a fault of it is logged, for the agent exits anyway."""
        self._listener = None
        try:
            await self.engine.stop(grace_s)
        except (Exception, asyncio.CancelledError) as fault:
            fields = {"event": "engine_stop_failed", "engine_id": self.engine_id}
            log.warning("engine did not stop cleanly: %r", fault, extra=fields)
            if isinstance(fault, asyncio.CancelledError):
                raise

    # What the engine calls (`engines.interface.Sink`).

    def running(self, dispatch_id: int, batch_size: int) -> None:
        """The item runs."""
        if self._listener is not None:
            self._listener.post(ev.EngineRunning(dispatch_id, batch_size))

    def delta(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """The item spoke."""
        if self._listener is not None:
            self._listener.output(dispatch_id, choice, channel, text, tokens)

    def extra(self, dispatch_id: int, choice: int, channel: int, extra: types.DeltaExtra) -> None:
        """The item has a rare row."""
        if self._listener is not None:
            self._listener.output_extra(dispatch_id, choice, channel, extra)

    def freed(self, dispatch_ids: Sequence[int]) -> None:
        """Slots are free, and results follow; few of them do as well by themselves."""
        if self._listener is not None and len(dispatch_ids) >= MANY_ENDS:
            self._listener.post(ev.EngineFreed(self.engine_id, dispatch_ids))

    def finished(self, dispatch_id: int, result: Result) -> None:
        """The item ended. What deltas carry already is not kept twice."""
        if self._listener is None:
            return
        complete = is_complete(result)
        held = self._listener.held(dispatch_id)
        if held is not None:
            if complete:
                self._measure(held, result)
            if held.item.stream and held.first_output_ns is not None:
                result.outputs = ()
        event = ev.EngineFinished(
            engine_id=self.engine_id, dispatch_id=dispatch_id, complete=complete, result=result
        )
        self._listener.post(event)

    def together(self) -> AbstractContextManager[None]:
        """What happens in one moment."""
        return nullcontext() if self._listener is None else self._listener.together()

    def changed(self) -> None:
        """Health, models or slots changed."""
        if self._listener is None:
            return
        before, self.descriptor = self.descriptor, self.engine.describe()
        pids = self.engine.pids if isinstance(self.engine, Parent) else ()
        self.place = Place(tuple(pids), self.descriptor.address)
        self._listener.post(ev.EngineChanged(self.spec, self.serving))
        self._listener.engine_changed(self.engine_id, descriptor=before != self.descriptor)

    def _measure(self, held: Held, result: Result) -> None:
        if held.running_ns is None:
            return
        run_s = (clock.now_ns() - held.running_ns) / 1e9
        model, size = held.item.model, held.batch_size
        if result.input_tokens and result.prefill_s:
            self.service_times.add_prefill(model, result.input_tokens, result.prefill_s)
        if self.descriptor.mode == node.ENGINE_MODE_STATIC:
            self.service_times.add_run(model, size, run_s)
            return
        decode_s = result.decode_s if result.decode_s is not None else run_s
        self.service_times.add_run(model, size, decode_s / max(1, result.output_tokens or 1))
