"""How does a call become a request? Convert it, then join or make its entry.

Every way in uses `Intake.open`; the entry answers the caller from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration as DurationProto

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.types import NEVER, Duration, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import Converter, Parsed, parse
from scheduler_service.rpc.entries import Caller, Entry, Key
from scheduler_service.rpc.validate import Limits, Refused, nanoseconds
from scheduler_service.security.permits import permit
from scheduler_service.security.principals import LOCAL, Principal, current
from scheduler_service.security.quotas import Quotas
from scheduler_service.security.refusals import Place, Refusals

FEATURES: Final = (
    "generate",
    "generate_stream",
    "multiplex",
    "cancel",
    "attach",
    "degrade",
    "continue",
    "restart",
    "explain_request",
    "pause_pool",
    "freeze_autoscale",
    "set_log_level",
    "policy",
    "load_model",
    "unload_model",
)
GRACES_MAX: Final = 256  # that are remembered
OFFSETS_MAX: Final = 1 << 16  # of a point to attach at
MAX_TRACESTATE: Final = 512  # characters; a longer one is dropped, not truncated
_DENIED: Final = {
    types_pb2.ERROR_REASON_PERMISSION_DENIED: "PERMISSION_DENIED",
    types_pb2.ERROR_REASON_UNAUTHENTICATED: "UNAUTHENTICATED",
}
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(slots=True)
class StreamOpening:
    """A stream of many calls, as the tracer needs to know of it."""

    tracing: tuple[str, str]  # traceparent and tracestate of its metadata
    opened_at: Instant
    peer: str  # as gRPC spells it
    span: Any = None  # the tracer's own, once a call of it is sampled
    on_end: Callable[[], None] | None = None


@dataclass(slots=True)
class Opening:
    """A call as the servicers hand it to `Intake.open`."""

    data: bytes  # InferenceRequest
    principal: Principal
    tracing: tuple[str, str]  # traceparent and tracestate of the RPC's metadata
    method: str = ""  # of a single RPC; empty: one of many calls on a stream
    rpc_deadline: Instant = NEVER
    detach_grace: Duration = 0
    attach: scheduler_service_pb2.AttachPoint | None = None
    peer: Callable[[], str] | None = None  # who calls, of a single RPC
    stream: StreamOpening | None = None  # that it came on, where requests are traced
    link: str = ""  # traceparent of the call that this one comes of, if it is not its parent
    received_at: Instant = 0  # 0: now


class Quarantined(Protocol):
    """What has shown itself to be no good."""

    alike: dict[tuple[str, int], int]  # empty: there is nothing

    def check(self, parsed: Parsed) -> None:
        """Raises Refused, if the request is of those; else states which nodes died with it."""

    def recall(self, request: Request) -> None:
        """States which nodes died with it in an earlier life."""


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
        quotas: Quotas | None = None,
        refusals: Refusals | None = None,
        quarantine: Quarantined | None = None,
        idle_stream: Duration = 900 * 1_000_000_000,
    ) -> None:
        self.book = book
        self.limits = limits
        self.clock = clock
        self._converter = converter
        self._on_entry = on_entry  # the tracer decides here whether the request is sampled
        self.idle_stream = idle_stream  # of a Multiplex stream without calls, until it is ended
        self.traces = on_entry is not None
        self._quarantine = quarantine
        self.max_requests_per_job = 0  # 0: there are no jobs
        self._quotas = quotas  # None: no tenant has any
        self._refusals = refusals or Refusals(clock)
        self._rid = 0
        self._graces: dict[bytes, Duration] = {}  # lengths as clients write them: few

    def open(self, opening: Opening, caller: Caller) -> Entry | None:
        """Convert the call, and join or make its entry. None: it was answered already.

        Raises:
            Refused: naming the field, relative to the message that has `request` and `attach`.
        """
        self._rid += 1
        if opening.attach is not None and len(opening.attach.offsets) > OFFSETS_MAX:
            raise Refused(f"at most {OFFSETS_MAX:,} offsets", field="attach.offsets")
        now = opening.received_at or self.clock.now()
        try:
            parsed = self._converter.convert(
                opening.data,
                rid=self._rid,
                now=now,
                rpc_deadline=opening.rpc_deadline,
                stream=caller.streams,
            )
            if opening.principal is not LOCAL:
                permit(opening.principal, parsed.request, parsed.given)
        except Refused as refused:
            refused.within("request")
            raise
        request = parsed.request
        key: Key | None = None
        if parsed.named:
            key = (opening.principal.name, request.tenant, request.request_id)
            try:
                found = self.book.find(key, opening.data)
            except Refused as refused:
                refused.within("request")
                raise
            if found is not None:
                return self._join(found, parsed, opening, caller)
        if self._quarantine is not None and self._quarantine.alike:
            self._quarantine.check(parsed)
        reservation = None if self._quotas is None else self._quotas.reserve(request, now)
        entry = Entry(request, opening.data, self.clock)
        entry.reservation = reservation
        if key is not None:  # else nobody could come back to it
            entry.detach = opening.detach_grace
        if parsed.labels:
            entry.labels = dict(parsed.labels)
        trace = parsed.trace
        traces = opening.tracing if trace is None else (trace.traceparent, trace.tracestate)
        entry.traceparent, entry.tracestate = traces
        if len(entry.tracestate) > MAX_TRACESTATE:
            entry.tracestate = ""
        entry.callers = (caller,)
        if opening.attach is not None:
            entry.expect(caller, opening.attach)
        try:
            if self._on_entry is not None:
                self._on_entry(entry, opening)
            self.book.open(entry, key, alone=opening.method != "")
        except BaseException:
            if reservation is not None and self._quotas is not None:
                self._quotas.take_back(reservation, now)
            raise
        return entry

    def _join(
        self, found: Entry | bytes, parsed: Parsed, opening: Opening, caller: Caller
    ) -> Entry | None:
        """The request is known: wait for its end with the others, or have it at once."""
        if isinstance(found, Entry):
            found.attach(caller, opening.attach)
            found.detach = max(found.detach, opening.detach_grace)
            if not found.request_bytes:
                if self._quarantine is not None:
                    self._quarantine.recall(parsed.request)
                self.book.complete(found, parsed)
            return found
        message = inference_pb2.InferenceResult.FromString(found)
        message.replayed = True
        caller.finish(
            message.SerializeToString(), message.error if message.HasField("error") else None
        )
        return None

    def refused(self, error: types_pb2.Error, principal: Principal) -> None:
        """For streams: a call was refused. Tells what its caller may not have."""
        reason = _DENIED.get(error.reason)
        if reason is not None:
            self._refusals.tell(Place.CALL, reason, error.message, principal=principal.name)

    def next_number(self) -> int:
        """A number for ids of streams; shares the requests' counter."""
        self._rid += 1
        return self._rid

    def grace(self, data: bytes) -> Duration:
        """A call's detach_grace, within the limit; empty: none.

        Raises:
            Refused: it is no length of time.
        """
        known = self._graces.get(data)
        if known is None:
            length = nanoseconds(parse(DurationProto, data), "detach_grace", zero=True)
            if len(self._graces) >= GRACES_MAX:
                self._graces.clear()
            known = self._graces[data] = min(length, self.limits.max_detach_grace)
        return known

    def limits_message(self) -> scheduler_service_pb2.Limits:
        """The limits, for callers."""
        limits = self.limits
        return scheduler_service_pb2.Limits(
            max_request_bytes=limits.max_request_bytes,
            max_message_bytes=limits.max_message_bytes,
            max_json_depth=limits.max_json_depth,
            max_requests_per_job=self.max_requests_per_job,
            max_timeout=status.duration(limits.max_timeout),
            max_detach_grace=status.duration(limits.max_detach_grace),
        )


def principal_of(context: Context) -> Principal:
    """Who calls, as the gate found out."""
    del context
    return current()


def tracing_of(context: Context) -> tuple[str, str]:
    """traceparent and tracestate of the RPC's metadata."""
    found = {"traceparent": "", "tracestate": ""}
    for key, value in context.invocation_metadata() or ():
        if key in found and isinstance(value, str):
            found[key] = value
    return found["traceparent"], found["tracestate"]
