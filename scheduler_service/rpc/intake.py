"""How does a call become a request? Convert it, then join or make its entry.

Every way in uses `Intake.open`; the entry answers the caller from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.types import NEVER, Duration, Instant
from scheduler_service.rpc import status
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import Converter, body_hash
from scheduler_service.rpc.entries import Caller, Entry, Key
from scheduler_service.rpc.validate import Limits, Refused, nanoseconds

FEATURES: Final = (
    "generate",
    "generate_stream",
    "multiplex",
    "cancel",
    "attach",
    "degrade",
    "continue",
    "restart",
)
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(slots=True)
class Opening:
    """A call as the servicers hand it to `_open`."""

    data: bytes  # InferenceRequest
    principal: str
    tracing: tuple[str, str]  # traceparent and tracestate of the RPC's metadata
    method: str = ""  # of a single RPC; empty: one of many calls on a stream
    rpc_deadline: Instant = NEVER
    detach_grace: Duration = 0
    attach: scheduler_service_pb2.AttachPoint | None = None


class Intake:
    """Takes calls in."""

    def __init__(
        self,
        *,
        book: Book,
        converter: Converter,
        clock: Clock,
        limits: Limits,
        on_entry: Callable[[Entry, Opening], None] | None = None,
    ) -> None:
        self.book = book
        self.limits = limits
        self.clock = clock
        self._converter = converter
        self._on_entry = on_entry  # the tracer decides here whether the request is sampled
        self._rid = 0

    def open(self, opening: Opening, caller: Caller, *, prefix: str) -> Entry | None:
        """Convert the call, and join or make its entry. None: it was answered already."""
        self._rid += 1
        try:
            parsed = self._converter.convert(
                opening.data,
                rid=self._rid,
                now=self.clock.now(),
                rpc_deadline=opening.rpc_deadline,
                stream=caller.streams,
            )
        except Refused as refused:
            if refused.error.field:
                refused.error.field = prefix + refused.error.field
            raise
        message, request = parsed.message, parsed.request
        key: Key | None = None
        digest = b""
        if parsed.client_id:
            key = (opening.principal, request.tenant, request.request_id)
            digest = body_hash(message)
            found = self.book.find(key, digest)
            if isinstance(found, Entry):
                found.detach = max(found.detach, opening.detach_grace)
                found.attach(caller, opening.attach)
                return found
            if found is not None:
                caller.finish(*_replayed(found))
                return None
        entry = Entry(request, opening.data, self.clock)
        entry.detach = opening.detach_grace
        if message.labels:
            entry.labels = dict(message.labels)
        if message.HasField("trace"):
            entry.traceparent, entry.tracestate = (
                message.trace.traceparent,
                message.trace.tracestate,
            )
        else:
            entry.traceparent, entry.tracestate = opening.tracing
        if self._on_entry is not None:
            self._on_entry(entry, opening)
        entry.callers.append(caller)
        self.book.open(entry, key, digest)
        return entry

    def next_number(self) -> int:
        """A number for ids of streams; shares the requests' counter."""
        self._rid += 1
        return self._rid

    def grace(self, length: Any) -> Duration:
        """A call's detach_grace, within the limit."""
        return min(nanoseconds(length, "detach_grace", zero=True), self.limits.max_detach_grace)

    def limits_message(self) -> scheduler_service_pb2.Limits:
        """The limits, for callers."""
        limits = self.limits
        return scheduler_service_pb2.Limits(
            max_request_bytes=limits.max_request_bytes,
            max_message_bytes=limits.max_message_bytes,
            max_json_depth=limits.max_json_depth,
            max_timeout=status.duration(limits.max_timeout),
            max_detach_grace=status.duration(limits.max_detach_grace),
        )


def failed(error: types_pb2.Error, request_id: str = "") -> bytes:
    """A result that is nothing but its error: the call never reached the core."""
    finish = types_pb2.FINISH_REASON_REJECTED
    if error.code == grpc.StatusCode.CANCELLED.value[0]:
        finish = types_pb2.FINISH_REASON_CANCELLED
    return inference_pb2.InferenceResult(
        request_id=request_id, finish_reason=finish, error=error
    ).SerializeToString()


def _replayed(result: bytes) -> tuple[bytes, types_pb2.Error | None]:
    message = inference_pb2.InferenceResult.FromString(result)
    message.replayed = True
    error = message.error if message.HasField("error") else None
    return message.SerializeToString(), error


def principal_of(context: Context) -> str:
    """Who calls. Without authentication everybody is the same nobody."""
    del context
    return ""


def tracing_of(context: Context) -> tuple[str, str]:
    """traceparent and tracestate of the RPC's metadata."""
    found = {"traceparent": "", "tracestate": ""}
    for key, value in context.invocation_metadata() or ():
        if key in found and isinstance(value, str):
            found[key] = value
    return found["traceparent"], found["tracestate"]
