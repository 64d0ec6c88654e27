"""Who waits for which request, and what have they been sent?

An `Entry` is one request at the edge: its bytes (spliced into dispatches), its callers, and what
they have been sent. It is the core's `Request.context` and the sink of its relay output. Several
callers share an entry when they name the same request id with the same body; the work is cancelled
when the last one leaves (after `detach_grace`, where one was asked for).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from batchyard.v1 import scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import AcceptRequest, FinishRequest
from scheduler_service.core.types import Attempt, Duration, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.results import ResultBuilder, text_outputs

Key = tuple[str, str, str]  # principal, tenant, request id


class Caller(Protocol):
    """One call that waits for a request. Calls never wait; the caller's stream sends."""

    streams: bool  # whether it wants output as it comes

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """It is in the queue."""

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """A node runs it; `restarted` voids what was delivered."""

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """New output."""

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """A rare row of output."""

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end: a serialised InferenceResult. Nothing follows."""


class Entry:
    """One request at the edge."""

    __slots__ = (
        "_announced",
        "_clock",
        "_texts",
        "_token_ids",
        "body_hash",
        "callers",
        "deltas",
        "detach",
        "detach_timer",
        "extras",
        "first_output_at",
        "key",
        "labels",
        "request",
        "request_bytes",
        "sampled",
        "span",
        "trace_id",
        "traceparent",
        "tracestate",
    )

    def __init__(self, request: Request, request_bytes: bytes, clock: Clock) -> None:
        self.request = request
        self.request_bytes = request_bytes
        self.callers: list[Caller] = []
        self.labels: dict[str, str] = {}
        self.traceparent = ""
        self.tracestate = ""
        self.trace_id = ""
        self.sampled = False
        self.span: object = None  # the tracer's own
        self.key: Key | None = None
        self.body_hash = b""
        self.detach: Duration = 0  # the longest grace that a caller asked for
        self.detach_timer: asyncio.TimerHandle | None = None
        self.first_output_at: Instant = 0
        self.deltas = 0
        self.extras: list[types_pb2.DeltaExtra] = []
        self._clock = clock
        self._announced: Attempt | None = None
        self._texts: dict[tuple[int, int], list[str]] = {}
        self._token_ids: list[int] = []

    def accept(self, command: AcceptRequest) -> None:
        """Tell the streaming callers that it waits."""
        message = scheduler_service_pb2.Accepted(
            request_id=self.request.request_id, queue_position=command.ahead
        )
        message.receive_time.CopyFrom(self._clock.timestamp(self.request.received_at))
        if command.estimated_wait:
            message.estimated_wait.CopyFrom(status.duration(command.estimated_wait))
        for caller in self.callers:
            if caller.streams:
                caller.accepted(message)

    def begin(self, attempt: Attempt, *, restarted: bool = False) -> None:
        """Announce the attempt's node to streaming callers, once."""
        if attempt is self._announced:
            return
        if self._announced is not None and self._announced.output_id != attempt.output_id:
            restarted = True
            self._texts.clear()
            self._token_ids.clear()
            self.extras.clear()
        self._announced = attempt
        message = self._started(attempt, restarted)
        for caller in self.callers:
            if caller.streams:
                caller.started(message)

    def _started(self, attempt: Attempt, restarted: bool) -> scheduler_service_pb2.Started:
        return scheduler_service_pb2.Started(
            attempt=attempt.number,
            node_id=attempt.node.node_id,
            model=attempt.model,
            degraded=self.request.degraded,
            output_id=attempt.output_id,
            restarted=restarted,
        )

    def deliver(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """New output, accepted by the relay and trimmed to what is new."""
        self._announce_speaker()
        if not self.first_output_at:
            self.first_output_at = self._clock.now()
        self.deltas += 1
        parts = self._texts.get((choice, channel))
        if parts is None:
            parts = self._texts[choice, channel] = []
        parts.append(text)
        if token_ids:
            self._token_ids.extend(token_ids)
        for caller in self.callers:
            if caller.streams:
                caller.delta(choice, channel, offset, text, tokens, token_ids)

    def deliver_extra(self, extra: types_pb2.DeltaExtra) -> None:
        """A rare row; kept for callers that attach later."""
        self._announce_speaker()
        self.extras.append(extra)
        for caller in self.callers:
            if caller.streams:
                caller.extra(extra)

    def _announce_speaker(self) -> None:
        """Whoever speaks has been announced before."""
        announced, output = self._announced, self.request.output
        if output is not None and (announced is None or announced.dispatch_id != output.speaker):
            speaker = self.request.live.get(output.speaker)
            if speaker is not None:
                self.begin(speaker)

    def delivered_text(self, channel: int) -> str:
        """What callers have been sent of choice 0 on that channel."""
        return "".join(self._texts.get((0, channel), ()))

    def delivered_token_ids(self) -> Sequence[int]:
        """Ids that callers have been sent, where they asked for ids."""
        return self._token_ids

    def attach(self, caller: Caller, have: scheduler_service_pb2.AttachPoint | None) -> None:
        """Join a request in flight; a streaming caller gets what it lacks, then the rest."""
        self.callers.append(caller)
        if self.detach_timer is not None:
            self.detach_timer.cancel()
            self.detach_timer = None
        if not caller.streams:
            return
        message = scheduler_service_pb2.Accepted(request_id=self.request.request_id, attached=True)
        message.receive_time.CopyFrom(self._clock.timestamp(self.request.received_at))
        caller.accepted(message)
        if self._announced is not None:
            self._catch_up(caller, self._announced, have)

    def _catch_up(
        self, caller: Caller, attempt: Attempt, have: scheduler_service_pb2.AttachPoint | None
    ) -> None:
        offsets: dict[tuple[int, int], int] = {}
        same = have is not None and have.output_id == attempt.output_id
        if have is not None and same:
            offsets = {(o.choice_index, o.channel): o.offset for o in have.offsets}
        had_other = have is not None and have.output_id != 0 and not same
        caller.started(self._started(attempt, had_other))
        for extra in self.extras:
            if extra.offset >= offsets.get((extra.choice_index, extra.channel), 0):
                caller.extra(extra)
        for (choice, channel), parts in self._texts.items():
            text = "".join(parts).encode()
            start = offsets.get((choice, channel), 0)
            rest = text[start:]
            if rest:
                caller.delta(choice, channel, start, rest.decode(), 0, ())

    def end(self, command: FinishRequest, results: ResultBuilder) -> bytes:
        """Give every caller the result; returns it as one who did not stream would get it."""
        built = results.build(command, first_output_at=self.first_output_at, trace_id=self.trace_id)
        for key, value in self.labels.items():
            built.labels[key] = value
        error = built.error if built.HasField("error") else None
        whole = self._whole(command, built)
        payload = command.payload
        if payload is not None and payload.outputs and not self._texts:
            streamed = whole  # nothing went as deltas: the outputs are all there is
        else:
            streamed = built.SerializeToString()
        callers, self.callers = self.callers, []
        for caller in callers:
            caller.finish(streamed if caller.streams else whole, error)
        return whole

    def _whole(self, command: FinishRequest, built: wire_pb2.PackedInferenceResult) -> bytes:
        """The result with all outputs."""
        payload = command.payload
        if payload is not None and payload.outputs:
            outputs: Sequence[bytes] = payload.outputs
        elif self._texts:
            outputs = text_outputs(self._texts, self._token_ids, built.finish_reason)
        else:
            return built.SerializeToString()
        copy = wire_pb2.PackedInferenceResult()
        copy.CopyFrom(built)
        copy.outputs.extend(outputs)
        return copy.SerializeToString()
