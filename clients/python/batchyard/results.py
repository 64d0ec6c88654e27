"""What a call gives back. All of it is a view of the message in `.proto`, read when asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from batchyard.v1 import Attempt as ProtoAttempt
from batchyard.v1 import AttemptState, ErrorReason, FinishReason, InferenceResult, Output
from batchyard.v1 import Timings as ProtoTimings
from batchyard.v1 import Usage as ProtoUsage

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

__all__ = ["Attempt", "Result", "Timings", "ToolCall", "Usage", "reason_name"]


@dataclass(slots=True, frozen=True)
class Usage:
    """Token counts as the engine reports them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    wasted_output_tokens: int | None = None
    partial: bool = False

    @classmethod
    def from_proto(cls, proto: ProtoUsage) -> Usage:
        return cls(
            proto.input_tokens if proto.HasField("input_tokens") else None,
            proto.output_tokens if proto.HasField("output_tokens") else None,
            proto.cached_input_tokens if proto.HasField("cached_input_tokens") else None,
            proto.reasoning_output_tokens if proto.HasField("reasoning_output_tokens") else None,
            proto.wasted_output_tokens if proto.HasField("wasted_output_tokens") else None,
            proto.partial,
        )


@dataclass(slots=True, frozen=True)
class Timings:
    """When things happened, by the scheduler's clock; None: they did not.

    `queue` is the time in the queue over all attempts; the phases on the node are those of the
    last attempt.
    """

    receive_time: datetime | None
    dispatch_time: datetime | None
    first_token_time: datetime | None
    finish_time: datetime | None
    queue: timedelta | None
    prefill: timedelta | None
    decode: timedelta | None
    engine_total: timedelta | None
    batch_size: int

    @classmethod
    def from_proto(cls, proto: ProtoTimings) -> Timings:
        engine = proto.engine
        return cls(
            receive_time=_instant(proto.receive_time, proto.HasField("receive_time")),
            dispatch_time=_instant(proto.dispatch_time, proto.HasField("dispatch_time")),
            first_token_time=_instant(proto.first_token_time, proto.HasField("first_token_time")),
            finish_time=_instant(proto.finish_time, proto.HasField("finish_time")),
            queue=_length(proto.queue_duration, proto.HasField("queue_duration")),
            prefill=_length(engine.prefill, engine.HasField("prefill")),
            decode=_length(engine.decode, engine.HasField("decode")),
            engine_total=_length(engine.total, engine.HasField("total")),
            batch_size=engine.batch_size,
        )


@dataclass(slots=True, frozen=True)
class Attempt:
    """One try on one node. `state` is "succeeded", "failed", "lost", ...; `error` the reason."""

    number: int
    node_id: str
    engine_id: str
    model: str
    state: str
    error: str
    error_message: str
    batch_id: str
    batch_size: int
    start_time: datetime | None
    end_time: datetime | None
    proto: ProtoAttempt = field(repr=False, compare=False)

    @classmethod
    def from_proto(cls, proto: ProtoAttempt) -> Attempt:
        return cls(
            number=proto.number,
            node_id=proto.node_id,
            engine_id=proto.engine_id,
            model=proto.model,
            state=_word(AttemptState, proto.state, "ATTEMPT_STATE_"),
            error=reason_name(proto.error.reason) if proto.HasField("error") else "",
            error_message=proto.error.message,
            batch_id=proto.batch_id,
            batch_size=proto.batch_size,
            start_time=_instant(proto.start_time, proto.HasField("start_time")),
            end_time=_instant(proto.end_time, proto.HasField("end_time")),
            proto=proto,
        )


@dataclass(slots=True, frozen=True)
class ToolCall:
    """A function call made by the model; `arguments_json` as the engine emitted it."""

    id: str
    name: str
    arguments_json: str
    index: int


@dataclass(slots=True, frozen=True)
class Result:
    """The end of a request that succeeded.

    `text` and `reasoning` are those of choice 0; `proto.outputs` has all choices, embeddings and
    tensors. `model` is the one that answered, which differs from the one asked for when
    `degraded`.
    """

    proto: InferenceResult = field(repr=False, compare=False)
    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    @classmethod
    def from_proto(cls, proto: InferenceResult) -> Result:
        """Of a result that carries its own outputs."""
        outputs = proto.outputs
        if not outputs:
            return cls(proto, "")
        output = outputs[0]
        calls = tool_calls_of(output) if output.tool_calls else ()
        return cls(proto, output.text, output.reasoning, calls)

    @property
    def request_id(self) -> str:
        return self.proto.request_id

    @property
    def model(self) -> str:
        return self.proto.model

    @property
    def node_id(self) -> str:
        return self.proto.node_id

    @property
    def trace_id(self) -> str:
        return self.proto.trace_id

    @property
    def finish_reason(self) -> str:
        """ "stop", "length", "tool_calls", "content_filter" or "complete"."""
        return _word(FinishReason, self.proto.finish_reason, "FINISH_REASON_")

    @property
    def partial(self) -> bool:
        return self.proto.partial

    @property
    def degraded(self) -> bool:
        return self.proto.degraded

    @property
    def degrade_reason(self) -> str:
        return self.proto.degrade_reason

    @property
    def replayed(self) -> bool:
        """The answer came from the server's idempotency cache."""
        return self.proto.replayed

    @property
    def usage(self) -> Usage:
        return Usage.from_proto(self.proto.usage)

    @property
    def timings(self) -> Timings:
        return Timings.from_proto(self.proto.timings)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(Attempt.from_proto(attempt) for attempt in self.proto.attempts)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.proto.labels)


def tool_calls_of(output: Output) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call.id, call.name, call.arguments_json, call.index) for call in output.tool_calls
    )


def reason_name(number: int) -> str:
    """An ErrorReason without its prefix; "UNKNOWN_999" for one that this version does not know."""
    if number == 0:
        return ""
    try:
        return ErrorReason.Name(number).removeprefix("ERROR_REASON_")
    except ValueError:
        return f"UNKNOWN_{number}"


def _word(enum: type[AttemptState] | type[FinishReason], number: int, prefix: str) -> str:
    try:
        return enum.Name(number).removeprefix(prefix).lower()
    except ValueError:
        return f"unknown_{number}"


def _instant(stamp: Timestamp, present: bool) -> datetime | None:
    return stamp.ToDatetime(tzinfo=UTC) if present else None


def _length(duration: Duration, present: bool) -> timedelta | None:
    return duration.ToTimedelta() if present else None
