"""The result of a request that went straight through, written as bytes.

Most requests are answered whole by their first attempt, at the model that they asked for. What such
a result has in common with its neighbours (its batch, its times) is written once for all of them,
and what its node sent goes in as it came. The bytes mean what the message says that `results.py`
builds for all others; `tests/unit/scheduler/test_results.py` compares the two.
"""

from __future__ import annotations

from typing import Any, Final

from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import AttemptState, Outcome
from scheduler_service.core.types import SECOND, Attempt, Batch, Duration, Instant, Request
from service_kit.wire_write import field, tag

_SUCCEEDED: Final = Outcome.SUCCEEDED  # a look-up costs 70 ns on every request's path
_ANSWERED: Final = AttemptState.SUCCEEDED
_STOP: Final = types_pb2.FINISH_REASON_STOP

_Result: Final = wire_pb2.PackedInferenceResult
_REQUEST_ID: Final = tag(_Result.REQUEST_ID_FIELD_NUMBER)
_OUTPUTS: Final = tag(_Result.OUTPUTS_FIELD_NUMBER)
_USAGE: Final = tag(_Result.USAGE_FIELD_NUMBER)
_TIMINGS: Final = tag(_Result.TIMINGS_FIELD_NUMBER)
_ATTEMPTS: Final = tag(_Result.ATTEMPTS_FIELD_NUMBER)
_ENGINE: Final = tag(wire_pb2.PackedTimings.ENGINE_FIELD_NUMBER)


def is_plain(command: FinishRequest, trace_id: str) -> bool:
    """Whether the result says nothing but what `PlainResults` writes."""
    request = command.request
    return (
        command.outcome is _SUCCEEDED
        and len(request.attempts) == 1
        and request.attempts[0].state is _ANSWERED
        and request.output is None
        and request.attempts[0].output_id == 0
        and command.payload is not None
        and not (request.degrade_reason or request.preemptions or trace_id)
    )


class PlainResults:
    """Writes results; holds what the last one had in common with the next."""

    def __init__(self) -> None:
        self._own = types_pb2.Attempt()  # numbers alone: filled anew, it does not grow
        # What the bytes were written from, and those bytes.
        self._alike: tuple[Batch, int, Instant, Instant, int, str] | None = None
        self._head = self._attempt = b""
        self._moments: tuple[Instant, Instant, Instant, Duration, int] | None = None
        self._times = b""

    def write(self, command: FinishRequest, wall: int) -> bytes:
        """A serialised InferenceResult. `wall`: the wall clock at instant 0."""
        request, payload = command.request, command.payload
        attempt = request.attempts[0]
        finish, model = payload.finish_reason or _STOP, request.served_model
        alike = (
            attempt.batch, attempt.number, attempt.started_at, attempt.ended_at, finish, model,
        )  # fmt: skip
        if alike != self._alike:
            self._alike = alike
            self._write_head(attempt, finish, model, wall)
        moments = (
            request.received_at,
            request.first_dispatch_at,
            request.finished_at,
            request.queue_time,
            wall,
        )
        if moments != self._moments:
            self._moments = moments
            self._times = times_of(request, wall).SerializeToString()
        own = self._own
        own.dispatch_id = attempt.dispatch_id
        if attempt.output_tokens:
            own.output_tokens = attempt.output_tokens
        else:
            own.ClearField("output_tokens")
        engine = payload.timings
        times = self._times + field(_ENGINE, engine) if engine else self._times
        written = (
            self._head
            + field(_REQUEST_ID, request.request_id.encode())
            + field(_ATTEMPTS, self._attempt + own.SerializeToString())
            + field(_TIMINGS, times)
        )
        usage = payload.usage.SerializeToString()
        if usage or payload.HasField("usage"):
            written += field(_USAGE, usage)
        for output in payload.outputs:
            written += field(_OUTPUTS, output)
        return written

    def _write_head(self, attempt: Attempt, finish: Any, model: str, wall: int) -> None:
        """What all results have alike that this batch brings at this time."""
        batch = attempt.batch
        node_id = batch.engine.node.node_id
        head = _Result(model=model, finish_reason=finish, node_id=node_id)
        self._head = head.SerializeToString()
        shown = types_pb2.Attempt(
            number=attempt.number,
            node_id=node_id,
            engine_id=batch.engine.engine_id,
            model=batch.model,
            state=types_pb2.ATTEMPT_STATE_SUCCEEDED,
            batch_id=batch.batch_id,
            batch_size=len(batch.attempts),
        )
        set_time(shown.start_time, wall + attempt.started_at)
        set_time(shown.end_time, wall + attempt.ended_at)
        self._attempt = shown.SerializeToString()


def times_of(request: Request, wall: int) -> wire_pb2.PackedTimings:
    """When it came, went out and ended; what its engine measured is not in it."""
    message = wire_pb2.PackedTimings()
    set_time(message.receive_time, wall + request.received_at)
    if request.first_dispatch_at:
        set_time(message.dispatch_time, wall + request.first_dispatch_at)
    set_time(message.finish_time, wall + request.finished_at)
    set_time(message.queue_duration, request.queue_time)
    return message


def set_time(into: Any, nanoseconds: int) -> None:
    """Fill a Timestamp or a Duration."""
    into.seconds, into.nanos = divmod(nanoseconds, SECOND)
