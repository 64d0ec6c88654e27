"""Who turns the core? One inbox, one writer, on one thread.

Theory of operation. `post` puts events into the inbox and turns the core until the inbox is empty.
Carrying out a command may post again (an engine that answers at once): that lands in the same
inbox, never in a nested step. After each turn one timer is set to the core's next wake-up. Output
goes to the core directly, beside `step`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import clock
from node_agent.core import Agent, Held
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.engine_care import EngineCare
from node_agent.engines.interface import EngineError, Result
from node_agent.rpc import durations
from node_agent.rpc.convert import Payload
from node_agent.rpc.errors import finish_reason_name, reason_value
from node_agent.rpc.outbox import Outbox
from node_agent.rpc.results import item_result
from node_agent.telemetry.spans import SpanTracer

log = logging.getLogger("node_agent.driver")

EVENTS_PER_STEP = 256
WAKE_FLOOR_S = 0.001  # a timer that fires a hair early must not spin


class Driver:
    """Feeds the core and does what it commands."""

    def __init__(
        self,
        core: Agent,
        engines: Mapping[str, EngineCare],
        outbox: Outbox,
        tracer: SpanTracer | None = None,
    ) -> None:
        self.core = core
        self.engines = engines
        self.outbox = outbox
        self.exit = asyncio.Event()
        self.on_model_drained: Callable[[str, str], None] = _nobody
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._inbox: list[ev.Event] = []
        self._turning = False
        self._together = False  # events are gathered, for one turn
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns: int | None = None
        self._hello: cmd.SendHello | None = None
        self._refusal: cmd.RefuseSession | None = None
        self._table: dict[type, Callable[[Any], None]] = {
            cmd.SendHello: self._keep_hello,
            cmd.RefuseSession: self._keep_refusal,
            cmd.RunItems: self._run,
            cmd.CancelItem: self._cancel,
            cmd.SendUpdate: outbox.add_update,
            cmd.SendResult: self._send_result,
            cmd.ForgetItem: self._forget,
            cmd.SendCredit: outbox.add_credit,
            cmd.SendReport: self._send_report,
            cmd.SendDrain: self._send_drain,
            cmd.DropModel: self._drop_model,
            cmd.Exit: self._exit,
        }

    # What sessions and engines call.

    def post(self, *events: ev.Event) -> None:
        """Something happened: turn the core until nothing is left."""
        self._inbox.extend(events)
        if self._turning:
            return
        self._turning = True
        try:
            self._turn()
        finally:
            self._turning = False
        self._set_timer()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is posted inside is one turn, at the end."""
        if self._turning:
            yield  # the turn takes it
            return
        self._turning = self._together = True
        try:
            yield
        finally:
            self._turning = self._together = False
            if self._inbox:
                self.post()

    def _catch_up(self) -> None:
        """Output is not to overtake what was posted before it."""
        if self._together and self._inbox:
            self._turn()

    def open_session(self) -> cmd.SendHello:
        """A stream is there; what its Hello must hand back."""
        self.post(ev.SessionOpened())
        hello, self._hello = self._hello, None
        assert hello is not None, "the core answers SessionOpened with a Hello"
        return hello

    def welcome(self, welcomed: ev.Welcomed) -> cmd.RefuseSession | None:
        """The Hello was answered. Returns why this session must not be."""
        self._refusal = None
        self.post(welcomed)
        return self._refusal

    def received(self, events: list[ev.Event]) -> None:
        """A message came."""
        if self._tracer is not None:
            for event in events:
                if isinstance(event, ev.BatchReceived):
                    self._trace_batch(self._tracer, event)
        self.post(*events)

    def _trace_batch(self, tracer: SpanTracer, batch: ev.BatchReceived) -> None:
        for item in batch.items:
            if isinstance(item.payload, Payload) and item.payload.trace is not None:
                inflight = self.core.live_items
                tracer.received(item.payload, inflight, self.core.session_epoch)

    def output(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """An engine streams."""
        self._catch_up()
        now_ns = clock.now_ns()
        update = self.core.output(now_ns, dispatch_id, (choice, channel), text, tokens)
        if self._tracer is not None:
            self._tracer.spoke(dispatch_id, now_ns, tokens)
        if update is not None:
            self.outbox.add_update(update)
        self.outbox.add_output()

    def output_extra(
        self, dispatch_id: int, choice: int, channel: int, extra: types.DeltaExtra
    ) -> None:
        """An engine streams what only a few deltas carry."""
        self._catch_up()
        now_ns = clock.now_ns()
        update = self.core.output_extra(now_ns, dispatch_id, (choice, channel), extra)
        if self._tracer is not None:
            self._tracer.spoke(dispatch_id, now_ns, 0)
        if update is not None:
            self.outbox.add_update(update)
        self.outbox.add_output()

    def held(self, dispatch_id: int) -> Held | None:
        """The item, while the agent cares for it."""
        return self.core.items.get(dispatch_id)

    def engine_changed(self, _engine_id: str, *, descriptor: bool) -> None:
        """An engine's health or being changed."""
        if descriptor:
            self.outbox.need_descriptor()
        self.outbox.need_report()

    def stop(self) -> None:
        """Turn no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The turn.

    def _turn(self) -> None:
        while True:
            events = self._inbox[:EVENTS_PER_STEP]
            del self._inbox[:EVENTS_PER_STEP]
            for command in self.core.step(clock.now_ns(), events):
                self._table[type(command)](command)
            if not self._inbox:
                return

    def _set_timer(self) -> None:
        at_ns = self.core.next_wakeup()
        if at_ns == self._timer_at_ns and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ns = at_ns
        if at_ns is not None:
            delay_s = max(WAKE_FLOOR_S, (at_ns - clock.now_ns()) / 1e9)
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.post()

    # Commands.

    def _keep_hello(self, command: cmd.SendHello) -> None:
        self._hello = command

    def _keep_refusal(self, command: cmd.RefuseSession) -> None:
        self._refusal = command

    def _run(self, command: cmd.RunItems) -> None:
        items = []
        for item in command.items:
            assert isinstance(item.payload, Payload), "an item that runs has been parsed"
            engine_item = item.payload.item
            if engine_item.traceparent and self._tracer is not None:
                own = self._tracer.engine_traceparent(item.dispatch_id)
                engine_item.traceparent = own or engine_item.traceparent
            items.append(engine_item)
        care = self.engines[command.engine_id]
        try:
            care.engine.submit(items, atomic=command.atomic)
        except Exception as fault:  # an engine's own bug: its items fail, the agent lives
            fields = {"event": "engine_failed", "engine_id": command.engine_id}
            log.exception("engine refused a batch by raising", extra=fields)
            for engine_item in items:
                self._fail(command.engine_id, engine_item.dispatch_id, fault)

    def _fail(self, engine_id: str, dispatch_id: int, fault: Exception) -> None:
        error = EngineError(
            reason=types.ERROR_REASON_ENGINE_ERROR, message=f"{type(fault).__name__}: {fault}"
        )
        result = Result(finish_reason=types.FINISH_REASON_ERROR, error=error)
        self.post(
            ev.EngineFinished(
                engine_id=engine_id, dispatch_id=dispatch_id, complete=False, result=result
            )
        )

    def _cancel(self, command: cmd.CancelItem) -> None:
        engine = self.engines[command.engine_id].engine
        try:
            engine.cancel(command.dispatch_id, reason_value(command.reason))
        except Exception:  # an engine's own bug: the core gives up on the item by its timer
            fields = {"event": "engine_failed", "engine_id": command.engine_id}
            log.exception("engine raised on a cancel", extra=fields)

    def _send_result(self, command: cmd.SendResult) -> None:
        self.outbox.add_result(command.held)
        debug = log.isEnabledFor(logging.DEBUG)
        if self._tracer is None and not debug:
            return
        result = item_result(command.held)
        if self._tracer is not None:
            self._tracer.finished(command.held, result)
        if debug:
            _log_result(command.held, result)

    def _forget(self, command: cmd.ForgetItem) -> None:
        if self._tracer is not None:
            self._tracer.forget(command.dispatch_id)

    def _send_report(self, _command: cmd.SendReport) -> None:
        self.outbox.need_report()

    def _send_drain(self, command: cmd.SendDrain) -> None:
        drain = node.Drain(reason=command.reason, terminate=True)
        if command.grace_ns is not None:
            drain.grace.CopyFrom(durations.from_ns(command.grace_ns))
        self.outbox.add_drain(drain)

    def _drop_model(self, command: cmd.DropModel) -> None:
        self.on_model_drained(command.engine_id, command.model)

    def _exit(self, _command: cmd.Exit) -> None:
        self.exit.set()


def _nobody(_engine_id: str, _model: str) -> None:
    """No model is ever closed."""


def _log_result(held: Held, result: node.ItemResult) -> None:
    fields = {
        "event": "item_finished",
        "request_id": held.item.request_id,
        "dispatch_id": held.item.dispatch_id,
        "attempt": held.item.attempt,
        "model": held.item.model,
        "engine_id": held.engine_id,
        "reason": finish_reason_name(result.finish_reason),
        "duration_ms": durations.to_ns(result.timings.total) // 1_000_000,
    }
    log.debug("item finished", extra=fields)
