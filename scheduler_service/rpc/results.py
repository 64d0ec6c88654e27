"""What does a caller get in the end? Builds the one InferenceResult of a request, as bytes.

Outputs are passed on as the node sent them; everything else is the scheduler's own account.
"""

from __future__ import annotations

from typing import Any, Final

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import FinishReason, Outcome
from scheduler_service.core.types import Attempt, Instant, Request
from scheduler_service.rpc import status

_FINISH: Final = {
    Outcome.FAILED: FinishReason.ERROR,
    Outcome.CANCELLED: FinishReason.CANCELLED,
    Outcome.EXPIRED: FinishReason.EXPIRED,
    Outcome.REJECTED: FinishReason.REJECTED,
}
MAX_ATTEMPTS_SHOWN: Final = 32


class ResultBuilder:
    """Builds results by one clock reading each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def build(
        self, command: FinishRequest, *, first_output_at: Instant, trace_id: str
    ) -> wire_pb2.PackedInferenceResult:
        """All but the outputs, which depend on what a caller has had as deltas."""
        request, payload, attempt = command.request, command.payload, command.attempt
        wall = self._clock.wall_ns(0)
        result = wire_pb2.PackedInferenceResult(
            request_id=request.request_id,
            model=request.served_model,
            finish_reason=_finish_reason(command),
            degraded=request.degraded,
            degrade_reason=request.degrade_reason,
            node_id=request.attempts[-1].node.node_id if request.attempts else "",
            preemptions=request.preemptions,
            trace_id=trace_id,
            attempts=[_attempt(a, wall) for a in request.attempts[-MAX_ATTEMPTS_SHOWN:]],
            timings=_timings(request, payload, first_output_at, wall),
        )
        if request.output is not None:
            result.output_id = request.output.output_id
        if command.outcome is not Outcome.SUCCEEDED:
            result.error.CopyFrom(
                status.error(
                    command.reason,
                    command.message,
                    field=payload.error.field if payload is not None else "",
                    metadata=command.metadata,
                    retry_after=command.retry_after,
                )
            )
        _usage(result, command, attempt)
        return result


def _finish_reason(command: FinishRequest) -> Any:
    if command.outcome is Outcome.SUCCEEDED:
        return command.payload.finish_reason or FinishReason.STOP
    return _FINISH[command.outcome]


def _usage(
    result: wire_pb2.PackedInferenceResult, command: FinishRequest, attempt: Attempt | None
) -> None:
    """Delivered tokens over all attempts, and what was thrown away."""
    request, payload = command.request, command.payload
    if payload is not None and payload.HasField("usage"):
        result.usage.CopyFrom(payload.usage)
    output = request.output
    if output is not None and output.tokens:
        result.usage.output_tokens = output.tokens
    has_output = (output is not None and output.begun) or (payload is not None and payload.outputs)
    if command.outcome is not Outcome.SUCCEEDED and has_output:
        result.partial = result.usage.partial = True
    wasted = sum(a.output_tokens for a in request.attempts if a is not attempt)
    if wasted and output is None:
        result.usage.wasted_output_tokens = wasted


def _timings(request: Request, payload: Any, first_output_at: Instant, wall: int) -> bytes:
    timings = types_pb2.Timings()
    _stamp(timings.receive_time, wall + request.received_at)
    _stamp(timings.finish_time, wall + request.finished_at)
    if request.first_dispatch_at:
        _stamp(timings.dispatch_time, wall + request.first_dispatch_at)
    if first_output_at:
        _stamp(timings.first_token_time, wall + first_output_at)
    timings.queue_duration.seconds = request.queue_time // 1_000_000_000
    timings.queue_duration.nanos = request.queue_time % 1_000_000_000
    if payload is not None and payload.HasField("timings"):
        timings.engine.CopyFrom(payload.timings)
    return timings.SerializeToString()


def _attempt(attempt: Attempt, wall: int) -> types_pb2.Attempt:
    shown = types_pb2.Attempt(
        number=attempt.number,
        dispatch_id=attempt.dispatch_id,
        node_id=attempt.node.node_id,
        engine_id=attempt.engine.engine_id,
        model=attempt.model,
        state=int(attempt.state),  # type: ignore[arg-type]
        batch_id=attempt.batch.batch_id,
        batch_size=len(attempt.batch.attempts),
        output_id=attempt.output_id,
    )
    _stamp(shown.start_time, wall + attempt.started_at)
    if attempt.ended_at:
        _stamp(shown.end_time, wall + attempt.ended_at)
    if attempt.reason:
        shown.error.CopyFrom(status.error(attempt.reason, attempt.message))
    if attempt.output_tokens:
        shown.output_tokens = attempt.output_tokens
    return shown


def _stamp(into: Any, wall: int) -> None:
    into.seconds = wall // 1_000_000_000
    into.nanos = wall % 1_000_000_000


def text_outputs(
    texts: dict[tuple[int, int], list[str]], token_ids: list[int], finish_reason: int
) -> list[bytes]:
    """Outputs made from what was streamed, for a caller that did not stream."""
    by_choice: dict[int, inference_pb2.Output] = {}
    for (choice, channel), parts in sorted(texts.items()):
        output = by_choice.setdefault(
            choice,
            inference_pb2.Output(index=choice, finish_reason=finish_reason),  # type: ignore[arg-type]
        )
        text = "".join(parts)
        if channel == 0:
            output.text = text
        elif channel == 1:
            output.reasoning = text
        else:
            call = output.tool_calls.add()
            call.index, call.arguments_json = channel - 16, text
    if token_ids and 0 in by_choice:
        by_choice[0].token_ids.extend(token_ids)
    return [output.SerializeToString() for output in by_choice.values()]
