"""What does a caller get in the end? Builds the one InferenceResult of a request, as bytes.

Outputs are passed on as the node sent them; everything else is the scheduler's own account.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import FinishReason, Outcome, Reason
from scheduler_service.core.types import Attempt, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.delivered import Delivered
from scheduler_service.rpc.plain_results import PlainResults, is_plain, set_time, times_of

_SUCCEEDED: Final = Outcome.SUCCEEDED  # a look-up costs 70 ns on every request's path
_STOP: Final = types_pb2.FINISH_REASON_STOP
_FINISH: Final = {
    Outcome.FAILED: FinishReason.ERROR,
    Outcome.CANCELLED: FinishReason.CANCELLED,
    Outcome.EXPIRED: FinishReason.EXPIRED,
    Outcome.REJECTED: FinishReason.REJECTED,
}
_CANCELLED: Final = status.code_number(Reason.CANCELLED_BY_CLIENT)
_INTERNAL: Final = status.code_number(Reason.INTERNAL)
MAX_ATTEMPTS_SHOWN: Final = 32
RESERVED_BYTES: Final = 64 * 1024  # of the largest message, for what is not a result


class ResultBuilder:
    """Builds results, by one reading of the wall clock for all that end in one step."""

    def __init__(self, clock: Clock, *, max_message_bytes: int = 64 << 20) -> None:
        self.most = max_message_bytes - RESERVED_BYTES  # bytes of a result
        self._clock = clock
        self._plain = PlainResults()
        self._wall_at: Instant = -1  # instant of the step for which the wall clock was read
        self._wall = 0

    def plain(self, command: FinishRequest, trace_id: str) -> bytes:
        """The whole result, where there is little to say; empty: it is to be built."""
        if not is_plain(command, trace_id):
            return b""
        return self._plain.write(command, self._wall_of(command.request))

    def _wall_of(self, request: Request) -> int:
        """The wall clock at instant 0."""
        if request.finished_at != self._wall_at:
            self._wall_at, self._wall = request.finished_at, self._clock.wall_ns(0)
        return self._wall

    def build(
        self, command: FinishRequest, *, first_output_at: Instant, trace_id: str
    ) -> wire_pb2.PackedInferenceResult:
        """All but the outputs, which depend on what a caller has had as deltas."""
        request, payload = command.request, command.payload
        wall = self._wall_of(request)
        result = wire_pb2.PackedInferenceResult()
        result.request_id = request.request_id
        result.model = request.served_model
        if command.outcome is _SUCCEEDED:
            result.finish_reason = payload.finish_reason or _STOP
        else:
            result.finish_reason = _FINISH[command.outcome]  # type: ignore[assignment]
            result.error.CopyFrom(_error(command))
        if request.attempts:
            result.node_id = request.attempts[-1].engine.node.node_id
            for attempt in request.attempts[-MAX_ATTEMPTS_SHOWN:]:
                result.attempts.append(_show(attempt, wall).SerializeToString())
        if request.degrade_reason:
            result.degraded = True
            result.degrade_reason = request.degrade_reason
        if request.preemptions:
            result.preemptions = request.preemptions
        if request.output is not None:
            result.output_id = request.output.output_id
        if trace_id:
            result.trace_id = trace_id
        times = times_of(request, wall)
        if first_output_at:
            set_time(times.first_token_time, wall + first_output_at)
        if payload is not None:
            times.engine = payload.timings
        result.timings = times.SerializeToString()
        _count_usage(result, command)
        return result


def _error(command: FinishRequest) -> types_pb2.Error:
    payload, reason = command.payload, command.reason
    field = payload.error.field if payload is not None else ""
    if reason is Reason.MODEL_NOT_FOUND and not field:
        field = "request.model"
    elif reason is Reason.CONTEXT_TOO_LONG and payload is None:
        field = "request.tokens"  # the core counts those of no other input
    return status.error(
        reason,
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
        result.usage.output_tokens = status.uint32(output.tokens)
    if command.outcome is not _SUCCEEDED and (
        (output is not None and output.begun) or (payload is not None and payload.outputs)
    ):
        result.partial = result.usage.partial = True
    if output is None and len(request.attempts) > 1:
        wasted = sum(a.output_tokens for a in request.attempts if a is not command.attempt)
        if wasted:
            result.usage.wasted_output_tokens = status.uint32(wasted)


def _show(attempt: Attempt, wall: int) -> types_pb2.Attempt:
    engine, batch = attempt.engine, attempt.batch
    shown = types_pb2.Attempt(
        number=attempt.number,
        dispatch_id=attempt.dispatch_id,
        node_id=engine.node.node_id,
        engine_id=engine.engine_id,
        model=attempt.model,
        state=attempt.state,  # type: ignore[arg-type]  # the protocol's numbers
        batch_id=batch.batch_id,
        batch_size=len(batch.attempts),
        output_id=attempt.output_id,
    )
    set_time(shown.start_time, wall + attempt.started_at)
    if attempt.ended_at:
        set_time(shown.end_time, wall + attempt.ended_at)
    if attempt.output_tokens:
        shown.output_tokens = status.uint32(attempt.output_tokens)
    if attempt.reason:
        shown.error.CopyFrom(status.error(attempt.reason, attempt.message))
    return shown


def too_large(size: int, most: int) -> types_pb2.Error:
    """What is said in place of a result that no message holds: writing it would end the stream, and
    a stored one would stand before all that come after it.
    """
    text = f"the result has {size} bytes, above the {most} that a message may have: ask for less"
    metadata = {"limitBytes": str(most), "resultBytes": str(size)}
    return status.error(Reason.REQUEST_TOO_LARGE, text, metadata=metadata)


def failed(error: types_pb2.Error, request_id: str = "") -> bytes:
    """A result that is nothing but its error, for a call that the core does not answer."""
    finish = types_pb2.FINISH_REASON_REJECTED
    if error.code == _CANCELLED:
        finish = types_pb2.FINISH_REASON_CANCELLED
    elif error.code == _INTERNAL:
        finish = types_pb2.FINISH_REASON_ERROR
    elif error.reason == types_pb2.ERROR_REASON_DEADLINE_EXCEEDED:
        finish = types_pb2.FINISH_REASON_EXPIRED
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
