"""One CLIENT span per request, where the process traces; nothing where it does not.

OpenTelemetry is never imported here: a process that traces has imported it already. Each request
carries its own trace context in its `trace` field, because the metadata of a shared stream cannot.
No span is ever made current, so none can be held over a `yield`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from batchyard.errors import BatchyardError
from batchyard.results import Result, Usage
from batchyard.v1 import InferenceRequest
from batchyard.version import version

__all__ = ["CallSpan", "begin", "current_metadata"]

_TRACESTATE_MAX = 512


class CallSpan:
    """The span of one call, from `begin` to exactly one of the `end_*`."""

    __slots__ = ("_began_s", "_span", "_trace")

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace = trace
        self._span = span
        self._began_s = time.monotonic()

    def retrying(self, error: BatchyardError, attempt: int, delay_s: float) -> None:
        self._span.add_event(
            "retry",
            {
                "error.type": error.reason or error.code,
                "batchyard.attempt": attempt,
                "batchyard.retry.delay_ms": round(delay_s * 1000),
            },
        )

    def first_chunk(self) -> None:
        elapsed_s = time.monotonic() - self._began_s
        self._span.set_attribute("gen_ai.response.time_to_first_chunk", elapsed_s)

    def begin_rpc(self, request: InferenceRequest, method: str, address: str) -> RpcSpan:
        """The span of one unary RPC below this one; `request` is made to name it as parent."""
        span = _tracer(self._trace).start_span(
            method,
            context=self._trace.set_span_in_context(self._span),
            kind=self._trace.SpanKind.CLIENT,
            attributes={"rpc.system.name": "grpc", "rpc.method": method, **_server(address)},
        )
        _inject(request, span.get_span_context())
        return RpcSpan(self._trace, span, request)

    def end_ok(self, result: Result) -> None:
        self._span.set_attributes(_outcome(result))
        self._span.end()

    def end_error(self, error: BaseException) -> None:
        """A typed error, or a cancellation by the caller."""
        kind = type(error).__name__
        if isinstance(error, BatchyardError):
            kind = error.reason or error.code
            self._span.set_attribute("batchyard.attempts", len(error.attempts))
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._trace.StatusCode.ERROR, str(error))
        self._span.end()


class RpcSpan:
    """The span of one unary RPC. `metadata` carries it, for servers that look there."""

    __slots__ = ("_span", "_trace", "metadata")

    def __init__(self, trace: Any, span: Any, request: InferenceRequest) -> None:
        self._trace = trace
        self._span = span
        context = request.trace
        pairs = (
            ("traceparent", context.traceparent),
            ("tracestate", context.tracestate),
            ("baggage", context.baggage),
        )
        self.metadata = tuple(pair for pair in pairs if pair[1])

    def end(self, code: str) -> None:
        self._span.set_attribute("rpc.status_code", code)
        if code != "OK":
            self._span.set_attribute("error.type", code)
            self._span.set_status(self._trace.StatusCode.ERROR)
        self._span.end()


def begin(request: InferenceRequest, *, stream: bool, address: str) -> CallSpan | None:
    """Starts the span of `request` and writes its context into it; None: nothing to record.

    A request that brings its own `trace` keeps it. Unsampled context travels too, so that every
    hop comes to the same decision and logs can be joined.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or request.HasField("trace"):
        return None
    parent = trace.get_current_span().get_span_context()
    if (parent.is_valid and not parent.trace_flags.sampled) or not _is_configured(trace):
        if parent.is_valid:
            _inject(request, parent)
        return None
    operation = "embeddings" if request.HasField("embedding") else "chat"
    span = _tracer(trace).start_span(
        f"{operation} {request.model}".rstrip(),
        kind=trace.SpanKind.CLIENT,
        attributes=_attributes(request, operation, stream, address),
    )
    _inject(request, span.get_span_context())
    return CallSpan(trace, span) if span.is_recording() else None


def current_metadata() -> tuple[tuple[str, str], ...]:
    """The context of the current span, for the metadata of calls that carry no `trace`."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ()
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ()
    pairs = [("traceparent", _traceparent(context))]
    if state := _tracestate(context):
        pairs.append(("tracestate", state))
    return tuple(pairs)


def _is_configured(trace: Any) -> bool:
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _tracer(trace: Any) -> Any:
    return trace.get_tracer("batchyard", version())


def _attributes(
    request: InferenceRequest, operation: str, stream: bool, address: str
) -> dict[str, Any]:
    params = request.params
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "batchyard",
        "gen_ai.request.stream": stream,
        "batchyard.request.id": request.request_id,
        **_server(address),
    }
    if request.model:
        attributes["gen_ai.request.model"] = request.model
    if params.HasField("max_tokens"):
        attributes["gen_ai.request.max_tokens"] = params.max_tokens
    if params.HasField("temperature"):
        attributes["gen_ai.request.temperature"] = params.temperature
    if request.priority:
        attributes["batchyard.priority"] = request.priority
    if request.task_type:
        attributes["batchyard.task_type"] = request.task_type
    if request.tenant:
        attributes["batchyard.tenant"] = request.tenant
    return attributes


def _server(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return {"server.address": address}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _outcome(result: Result) -> dict[str, Any]:
    usage: Usage = result.usage
    attributes: dict[str, Any] = {
        "gen_ai.response.model": result.model,
        "gen_ai.response.finish_reasons": (result.finish_reason,),
        "batchyard.degraded": result.degraded,
        "batchyard.attempts": len(result.proto.attempts),
        "batchyard.node.id": result.node_id,
    }
    if usage.input_tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
    if usage.cached_input_tokens is not None:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_input_tokens
    return attributes


def _inject(request: InferenceRequest, context: Any) -> None:
    trace = request.trace
    trace.traceparent = _traceparent(context)
    trace.tracestate = _tracestate(context)
    baggage = sys.modules.get("opentelemetry.baggage")
    if baggage is not None and baggage.get_all():
        carrier: dict[str, str] = {}
        _baggage_propagator().inject(carrier)
        trace.baggage = carrier.get("baggage", "")


def _traceparent(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _tracestate(context: Any) -> str:
    """A longer one than the scheduler takes is left out whole."""
    state: str = context.trace_state.to_header() if context.trace_state else ""
    return state if len(state) <= _TRACESTATE_MAX else ""


def _baggage_propagator() -> Any:
    from opentelemetry.baggage.propagation import W3CBaggagePropagator

    return W3CBaggagePropagator()
