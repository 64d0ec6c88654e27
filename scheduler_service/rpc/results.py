"""What does a caller get in the end? Builds the one InferenceResult of a request, as bytes.

Outputs are passed on as the node sent them; everything else is the scheduler's own account.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import FinishReason, Outcome, Reason
from scheduler_service.core.types import Attempt, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.delivered import Delivered

_FINISH: Final = {
    Outcome.FAILED: FinishReason.ERROR,
    Outcome.CANCELLED: FinishReason.CANCELLED,
    Outcome.EXPIRED: FinishReason.EXPIRED,
    Outcome.REJECTED: FinishReason.REJECTED,
}
_CANCELLED: Final = status.code_number(Reason.CANCELLED_BY_CLIENT)
_INTERNAL: Final = status.code_number(Reason.INTERNAL)
MAX_ATTEMPTS_SHOWN: Final = 32


class ResultBuilder:
    """Builds results by one clock reading each. On the path of every request, so fields are set
    in place, and only those that say something.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def build(
        self, command: FinishRequest, *, first_output_at: Instant, trace_id: str
    ) -> wire_pb2.PackedInferenceResult:
        """All but the outputs, which depend on what a caller has had as deltas."""
        request, payload = command.request, command.payload
        wall = self._clock.wall_ns(0)
        result = wire_pb2.PackedInferenceResult()
        result.request_id = request.request_id
        result.model = request.served_model
        if command.outcome is Outcome.SUCCEEDED:
            result.finish_reason = payload.finish_reason or types_pb2.FINISH_REASON_STOP
        else:
            result.finish_reason = _FINISH[command.outcome]  # type: ignore[assignment]
            result.error.CopyFrom(_error(command))
        if request.attempts:
            result.node_id = request.attempts[-1].engine.node.node_id
            for attempt in request.attempts[-MAX_ATTEMPTS_SHOWN:]:
                _show_attempt(result.attempts.add(), attempt, wall)
        if request.degrade_reason:
            result.degraded = True
            result.degrade_reason = request.degrade_reason
        if request.preemptions:
            result.preemptions = request.preemptions
        if request.output is not None:
            result.output_id = request.output.output_id
        if trace_id:
            result.trace_id = trace_id
        result.timings = _timings(request, payload, first_output_at, wall)
        _count_usage(result, command)
        return result


def _error(command: FinishRequest) -> types_pb2.Error:
    field = command.payload.error.field if command.payload is not None else ""
    if command.reason is Reason.MODEL_NOT_FOUND and not field:
        field = "request.model"
    return status.error(
        command.reason,
        command.message,
        field=field,
        metadata=command.metadata,
        retry_after=command.retry_after,
    )


def _count_usage(result: wire_pb2.PackedInferenceResult, command: FinishRequest) -> None:
    """Delivered tokens over all attempts, and what was thrown away."""
    request, payload = command.request, command.payload
    output = request.output
    if payload is not None and payload.HasField("usage"):
        result.usage.CopyFrom(payload.usage)
    if output is not None and output.tokens:
        result.usage.output_tokens = output.tokens
    has_output = (output is not None and output.begun) or (payload is not None and payload.outputs)
    if command.outcome is not Outcome.SUCCEEDED and has_output:
        result.partial = result.usage.partial = True
    if output is None and len(request.attempts) > 1:
        wasted = sum(a.output_tokens for a in request.attempts if a is not command.attempt)
        if wasted:
            result.usage.wasted_output_tokens = wasted


def _timings(request: Request, payload: Any, first_output_at: Instant, wall: int) -> bytes:
    timings = types_pb2.Timings()
    _set_time(timings.receive_time, wall + request.received_at)
    _set_time(timings.finish_time, wall + request.finished_at)
    if request.first_dispatch_at:
        _set_time(timings.dispatch_time, wall + request.first_dispatch_at)
    if first_output_at:
        _set_time(timings.first_token_time, wall + first_output_at)
    _set_time(timings.queue_duration, request.queue_time)
    if payload is not None and payload.HasField("timings"):
        timings.engine.CopyFrom(payload.timings)
    return timings.SerializeToString()


def _show_attempt(shown: types_pb2.Attempt, attempt: Attempt, wall: int) -> None:
    engine, batch = attempt.engine, attempt.batch
    shown.number = attempt.number
    shown.dispatch_id = attempt.dispatch_id
    shown.node_id = engine.node.node_id
    shown.engine_id = engine.spec.engine_id
    shown.model = attempt.model
    shown.state = attempt.state  # type: ignore[assignment]  # the protocol's numbers
    shown.batch_id = batch.batch_id
    shown.batch_size = len(batch.attempts)
    _set_time(shown.start_time, wall + attempt.started_at)
    if attempt.output_id:
        shown.output_id = attempt.output_id
    if attempt.ended_at:
        _set_time(shown.end_time, wall + attempt.ended_at)
    if attempt.reason:
        shown.error.CopyFrom(status.error(attempt.reason, attempt.message))
    if attempt.output_tokens:
        shown.output_tokens = attempt.output_tokens


def _set_time(into: Any, nanoseconds: int) -> None:
    """Fill a Timestamp or a Duration."""
    into.seconds, into.nanos = divmod(nanoseconds, 1_000_000_000)


def failed(error: types_pb2.Error, request_id: str = "") -> bytes:
    """A result that is nothing but its error, for a call that the core does not answer."""
    finish = types_pb2.FINISH_REASON_REJECTED
    if error.code == _CANCELLED:
        finish = types_pb2.FINISH_REASON_CANCELLED
    elif error.code == _INTERNAL:
        finish = types_pb2.FINISH_REASON_ERROR
    return inference_pb2.InferenceResult(
        request_id=request_id, finish_reason=finish, error=error
    ).SerializeToString()


def text_outputs(delivered: Mapping[tuple[int, int], Delivered], finish_reason: int) -> list[bytes]:
    """Outputs made from what was streamed, for a caller that did not stream."""
    by_choice: dict[int, inference_pb2.Output] = {}
    for (choice, channel), sent in sorted(delivered.items(), key=itemgetter(0)):
        output = by_choice.setdefault(
            choice,
            inference_pb2.Output(index=choice, finish_reason=finish_reason),  # type: ignore[arg-type]
        )
        text = "".join(sent.texts)
        if channel == 0:
            output.text = text
            output.token_ids.extend(sent.all_ids())
        elif channel == 1:
            output.reasoning = text
        else:
            call = output.tool_calls.add()
            call.index, call.arguments_json = channel - 16, text
    return [output.SerializeToString() for output in by_choice.values()]
