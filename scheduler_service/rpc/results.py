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
from scheduler_service.core.types import SECOND, Attempt, Batch, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.delivered import Delivered

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


USES: Final = 256  # of a message that is filled anew: what it was given before stays in its memory


class _Times:
    """Timings that are filled anew for each result: parts that are held cost no look-up."""

    __slots__ = ("dispatch", "finish", "first", "message", "queue", "receive", "uses")

    def __init__(self, dispatched: bool, spoke: bool) -> None:
        message = self.message = wire_pb2.PackedTimings()
        self.receive, self.finish = message.receive_time, message.finish_time
        self.dispatch = message.dispatch_time if dispatched else None
        self.first = message.first_token_time if spoke else None
        self.queue = message.queue_duration
        self.uses = 0


class _Shown:
    """Likewise an attempt that succeeded; what a batch has in common is filled in once for it."""

    __slots__ = ("batch", "end", "message", "start", "uses")

    def __init__(self) -> None:
        self.message = types_pb2.Attempt()
        self.start, self.end = self.message.start_time, self.message.end_time
        self.batch: Batch | None = None
        self.uses = 0


class ResultBuilder:
    """Builds results, by one reading of the wall clock for all that end in one step. On the path of
    every request, so fields are set in place, and only those that say something.
    """

    def __init__(self, clock: Clock, *, max_message_bytes: int = 64 << 20) -> None:
        self.most = max_message_bytes - RESERVED_BYTES  # bytes of a result
        self._clock = clock
        self._times: dict[tuple[bool, bool], _Times] = {}
        self._shown = _Shown()
        self._wall_at: Instant = -1  # instant of the step for which the wall clock was read
        self._wall = 0

    def build(
        self, command: FinishRequest, *, first_output_at: Instant, trace_id: str
    ) -> wire_pb2.PackedInferenceResult:
        """All but the outputs, which depend on what a caller has had as deltas."""
        request, payload = command.request, command.payload
        if request.finished_at != self._wall_at:
            self._wall_at, self._wall = request.finished_at, self._clock.wall_ns(0)
        wall = self._wall
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
                result.attempts.append(self._show(attempt, wall))
        if request.degrade_reason:
            result.degraded = True
            result.degrade_reason = request.degrade_reason
        if request.preemptions:
            result.preemptions = request.preemptions
        if request.output is not None:
            result.output_id = request.output.output_id
        if trace_id:
            result.trace_id = trace_id
        result.timings = self._timings(request, payload, first_output_at, wall)
        _count_usage(result, command)
        return result

    def _timings(
        self, request: Request, payload: Any, first_output_at: Instant, wall: int
    ) -> bytes:
        key = (request.first_dispatch_at != 0, first_output_at != 0)
        times = self._times.get(key)
        if times is None or times.uses == USES:
            times = self._times[key] = _Times(*key)
        times.uses += 1
        receive, finish, queue = times.receive, times.finish, times.queue
        receive.seconds, receive.nanos = divmod(wall + request.received_at, SECOND)
        finish.seconds, finish.nanos = divmod(wall + request.finished_at, SECOND)
        queue.seconds, queue.nanos = divmod(request.queue_time, SECOND)
        if (dispatch := times.dispatch) is not None:
            dispatch.seconds, dispatch.nanos = divmod(wall + request.first_dispatch_at, SECOND)
        if times.first is not None:
            _set_time(times.first, wall + first_output_at)
        message = times.message
        measured = payload is not None and payload.HasField("timings")
        message.engine = payload.timings.SerializeToString() if measured else b""
        return message.SerializeToString()

    def _show(self, attempt: Attempt, wall: int) -> bytes:
        if attempt.reason or attempt.output_id or not attempt.ended_at or not attempt.output_tokens:
            message = types_pb2.Attempt()
            _show_attempt(message, attempt, wall)
            return message.SerializeToString()
        shown = self._shown
        if shown.uses == USES:
            shown = self._shown = _Shown()
        shown.uses += 1
        if shown.batch is not attempt.batch:
            shown.batch = attempt.batch
            _describe_batch(shown.message, attempt.batch)
        _describe(shown.message, attempt)
        shown.start.seconds, shown.start.nanos = divmod(wall + attempt.started_at, SECOND)
        shown.end.seconds, shown.end.nanos = divmod(wall + attempt.ended_at, SECOND)
        return shown.message.SerializeToString()


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
    if command.outcome is not _SUCCEEDED and (
        (output is not None and output.begun) or (payload is not None and payload.outputs)
    ):
        result.partial = result.usage.partial = True
    if output is None and len(request.attempts) > 1:
        wasted = sum(a.output_tokens for a in request.attempts if a is not command.attempt)
        if wasted:
            result.usage.wasted_output_tokens = wasted


def _show_attempt(shown: types_pb2.Attempt, attempt: Attempt, wall: int) -> None:
    _describe_batch(shown, attempt.batch)
    _describe(shown, attempt)
    _set_time(shown.start_time, wall + attempt.started_at)
    if attempt.output_id:
        shown.output_id = attempt.output_id
    if attempt.ended_at:
        _set_time(shown.end_time, wall + attempt.ended_at)
    if attempt.reason:
        shown.error.CopyFrom(status.error(attempt.reason, attempt.message))


def _describe_batch(shown: types_pb2.Attempt, batch: Batch) -> None:
    """What all attempts of a batch have alike."""
    engine = batch.engine
    shown.node_id = engine.node.node_id
    shown.engine_id = engine.spec.engine_id
    shown.model = batch.model
    shown.batch_id = batch.batch_id
    shown.batch_size = len(batch.attempts)


def _describe(shown: types_pb2.Attempt, attempt: Attempt) -> None:
    """What every attempt has."""
    shown.number = attempt.number
    shown.dispatch_id = attempt.dispatch_id
    shown.state = attempt.state  # type: ignore[assignment]  # the protocol's numbers
    if attempt.output_tokens:
        shown.output_tokens = attempt.output_tokens


def _set_time(into: Any, nanoseconds: int) -> None:
    """Fill a Timestamp or a Duration."""
    into.seconds, into.nanos = divmod(nanoseconds, SECOND)


def too_large(size: int, most: int) -> types_pb2.Error:
    """What is said in place of a result that no message holds: writing it would end the stream, and
    a stored one would stand before all that come after it.
    """
    text = f"the result has {size} bytes, above the {most} that a message may have"
    error = status.error(Reason.ENGINE_ERROR, text, metadata={"limitBytes": str(most)})
    error.retryable = False
    return error


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
