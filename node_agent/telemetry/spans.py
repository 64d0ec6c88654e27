"""Which spans does an item leave?

    process MODEL                SERVER    from receipt to the end; child of the attempt, links to
      |                                    the batch
      '- engine OPERATION MODEL  CLIENT    from when the engine got it
           |- prefill            INTERNAL  until its first output
           '- decode             INTERNAL  from there on

Made when the item has ended, with the instants that were noted on the way. Where the attempt is not
sampled, nothing is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import clock
from node_agent.core import Held
from node_agent.engines.interface import Item
from node_agent.rpc import durations
from node_agent.rpc.convert import Payload
from node_agent.rpc.errors import finish_reason_name, reason_name
from service_kit import span_names as names

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, SpanContext

    from node_agent.telemetry.planned_ids import PlannedIds

Attributes = dict[str, Any]
MAX_PROGRESS_EVENTS = 16
# Asked for by the scheduler: an end, and no error.
_CALLED_OFF = frozenset(
    {
        types.ERROR_REASON_CANCELLED_BY_CLIENT,
        types.ERROR_REASON_CANCELLED_BY_ADMIN,
        types.ERROR_REASON_CLIENT_TOO_SLOW,
        types.ERROR_REASON_PREEMPTED,
        types.ERROR_REASON_REVOKED,
    }
)


@dataclass(slots=True)
class Seed:
    """What is noted of a sampled item until its spans are made."""

    trace: types.TraceContext
    batch_trace: types.TraceContext | None
    wall_offset_ns: int  # wall clock minus monotonic clock, once
    engine_span_id: int
    operation: str
    model: str
    inflight: int
    session_epoch: int
    request: Attributes
    item: Item
    tokens: int = 0
    progress: list[tuple[int, int]] = field(default_factory=list)  # (instant, tokens)


class SpanTracer:
    """Makes the spans of sampled items."""

    def __init__(
        self,
        provider: TracerProvider,
        ids: PlannedIds,
        node_id: str,
        engines: Mapping[str, node.EngineDescriptor],
    ) -> None:
        self._tracer = provider.get_tracer("node_agent")
        self._ids = ids
        self._node_id = node_id
        self._engines = engines
        self._seeds: dict[int, Seed] = {}

    def received(self, payload: Payload, inflight: int, session_epoch: int) -> None:
        """Note what the spans will need."""
        if payload.trace is None:
            return
        item = payload.item
        self._seeds[item.dispatch_id] = Seed(
            trace=payload.trace,
            batch_trace=payload.batch_trace,
            wall_offset_ns=clock.wall_ns() - clock.now_ns(),
            engine_span_id=self._ids.reserve(),
            operation=operation_name(item.request),
            model=item.model,
            inflight=inflight,
            session_epoch=session_epoch,
            request=_request_attributes(item.request, item.max_tokens, stream=item.stream),
            item=item,
        )

    def engine_traceparent(self, dispatch_id: int) -> str:
        """The engine's span is known by its id before it exists."""
        seed = self._seeds.get(dispatch_id)
        if seed is None:
            return ""
        return f"{seed.trace.traceparent[:36]}{seed.engine_span_id:016x}-01"

    def spoke(self, dispatch_id: int, now_ns: int, tokens: int) -> None:
        """Note progress at each doubling of the tokens."""
        seed = self._seeds.get(dispatch_id)
        if seed is None:
            return
        seed.tokens += tokens
        last = seed.progress[-1][1] if seed.progress else 0
        if seed.tokens >= max(2, 2 * last) and len(seed.progress) < MAX_PROGRESS_EVENTS:
            seed.progress.append((now_ns, seed.tokens))

    def forget(self, dispatch_id: int) -> None:
        """An abandoned item leaves no spans: the scheduler has closed its attempt."""
        self._seeds.pop(dispatch_id, None)

    def finished(self, held: Held, result: node.ItemResult) -> None:
        """Make the spans of an item, once."""
        seed = self._seeds.pop(held.item.dispatch_id, None)
        if seed is None or held.finished_ns is None:
            return
        _SpanMaker(self._tracer, self._ids, seed, held, result).make(
            self._node_id, self._engines.get(held.engine_id)
        )


class _SpanMaker:
    """Makes the spans of one item."""

    def __init__(
        self, tracer: Any, ids: PlannedIds, seed: Seed, held: Held, result: node.ItemResult
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self._seed = seed
        self._held = held
        self._result = result
        self._end_ns = held.finished_ns or held.received_ns

    def make(self, node_id: str, engine: node.EngineDescriptor | None) -> None:
        from opentelemetry.trace import SpanKind

        held, seed = self._held, self._seed
        item = held.item
        attributes = {
            names.DISPATCH_ID: str(item.dispatch_id),
            names.REQUEST_ID: item.request_id,
            names.ATTEMPT: item.attempt,
            names.NODE_ID: node_id,
            names.ENGINE_ID: held.engine_id,
            names.SESSION_EPOCH: str(seed.session_epoch),
            names.INFLIGHT: seed.inflight,
            names.GEN_AI_REQUEST_MODEL: seed.model,
        }
        process = self._start(
            f"process {seed.model}",
            SpanKind.SERVER,
            _context(seed.trace),
            held.received_ns,
            attributes,
            _links(seed.batch_trace),
        )
        process.add_event("received", timestamp=self._wall(held.received_ns))
        if self._result.refused:
            process.set_attribute(names.REFUSED, True)
        if held.submitted_ns is not None:
            self._make_engine(process, held.submitted_ns, engine)
        self._finish(process)

    def _make_engine(
        self, parent: Span, from_ns: int, engine: node.EngineDescriptor | None
    ) -> None:
        from opentelemetry.trace import SpanKind

        seed, held = self._seed, self._held
        attributes = seed.request | {
            names.GEN_AI_OPERATION: seed.operation,
            names.GEN_AI_REQUEST_MODEL: seed.model,
            names.LOCAL_QUEUE_MS: (from_ns - held.received_ns) // 1_000_000,
        }
        if held.batch_size:
            attributes[names.BATCH_SIZE] = held.batch_size
        if engine is not None:
            attributes |= _engine_attributes(engine)
        if seed.item.url_path:
            attributes |= {names.HTTP_METHOD: "POST", names.URL_PATH: seed.item.url_path}
        self._ids.plan(seed.engine_span_id)
        name = f"engine {seed.operation} {seed.model}"
        span = self._start(name, SpanKind.CLIENT, _under(parent), from_ns, attributes)
        span.set_attribute(
            names.GEN_AI_RESPONSE_FINISH_REASONS, [finish_reason_name(self._result.finish_reason)]
        )
        usage = self._result.usage
        for attribute, value in _usage(usage, "input_tokens", "output_tokens").items():
            span.set_attribute(attribute, value)
        self._make_phases(span)
        self._finish(span)

    def _make_phases(self, engine: Span) -> None:
        """Prefill and decode, by the engine's own figures where it gave them."""
        from opentelemetry.trace import SpanKind

        begun_ns = self._held.running_ns
        if begun_ns is None:
            return
        times, usage = self._result.timings, self._result.usage
        first_ns = self._held.first_output_ns
        if first_ns is None and times.HasField("prefill"):
            first_ns = begun_ns + durations.to_ns(times.prefill)
        middle_ns = min(first_ns if first_ns is not None else self._end_ns, self._end_ns)
        attributes = _usage(usage, "input_tokens", "cached_input_tokens")
        prefill = self._start("prefill", SpanKind.INTERNAL, _under(engine), begun_ns, attributes)
        prefill.end(self._wall(middle_ns))
        if first_ns is None:
            return
        attributes = _usage(usage, "output_tokens")
        seconds = (self._end_ns - middle_ns) / 1e9
        if usage.output_tokens > 1 and seconds > 0:
            attributes[names.TOKENS_PER_SECOND] = round((usage.output_tokens - 1) / seconds, 2)
        decode = self._start("decode", SpanKind.INTERNAL, _under(engine), middle_ns, attributes)
        decode.add_event("first_token", timestamp=self._wall(middle_ns))
        for at_ns, tokens in self._seed.progress:
            decode.add_event("progress", {names.TOKENS: tokens}, self._wall(at_ns))
        if self._result.error.reason == types.ERROR_REASON_PREEMPTED:
            decode.add_event("preempted", timestamp=self._wall(self._end_ns))
        decode.end(self._wall(self._end_ns))

    def _start(
        self,
        name: str,
        kind: Any,
        context: Context,
        at_ns: int,
        attributes: Attributes,
        links: list[Link] | None = None,
    ) -> Span:
        span: Span = self._tracer.start_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            links=links or [],
            start_time=self._wall(at_ns),
        )
        return span

    def _finish(self, span: Span) -> None:
        from opentelemetry.trace import Status, StatusCode

        if self._result.HasField("error"):
            error = self._result.error
            span.set_attribute(names.ERROR_REASON, reason_name(error.reason))
            if error.reason not in _CALLED_OFF:
                span.set_attribute(names.ERROR_TYPE, reason_name(error.reason))
                span.set_status(Status(StatusCode.ERROR, error.message[:256]))
        span.end(self._wall(self._end_ns))

    def _wall(self, at_ns: int) -> int:
        return at_ns + self._seed.wall_offset_ns


def operation_name(request: inference.InferenceRequest) -> str:
    """As the GenAI conventions call what is asked for."""
    kind = request.WhichOneof("input")
    if kind in ("chat", "text"):  # a plain prompt is a chat of one turn, as clients name it
        return "chat"
    if kind == "embedding":
        return "embeddings"
    return "text_completion" if kind == "tokens" else "generate_content"


def _request_attributes(
    request: inference.InferenceRequest, max_tokens: int, *, stream: bool
) -> Attributes:
    params = request.params
    attributes: Attributes = {names.GEN_AI_REQUEST_STREAM: stream}
    if max_tokens or params.HasField("max_tokens"):
        attributes[names.GEN_AI_REQUEST_MAX_TOKENS] = max_tokens or params.max_tokens
    for name, attribute in (
        ("temperature", names.GEN_AI_REQUEST_TEMPERATURE),
        ("top_p", names.GEN_AI_REQUEST_TOP_P),
        ("seed", names.GEN_AI_REQUEST_SEED),
        ("n", names.GEN_AI_REQUEST_CHOICES),
    ):
        if params.HasField(name):
            attributes[attribute] = getattr(params, name)
    return attributes


def _engine_attributes(engine: node.EngineDescriptor) -> Attributes:
    attributes: Attributes = {names.GEN_AI_PROVIDER: engine.kind}
    if engine.address:
        host, _, port = engine.address.split("//")[-1].split("/")[0].rpartition(":")
        attributes[names.SERVER_ADDRESS] = host or engine.address
        if port.isdigit():
            attributes[names.SERVER_PORT] = int(port)
    return attributes


USAGE = {
    "input_tokens": names.GEN_AI_USAGE_INPUT,
    "output_tokens": names.GEN_AI_USAGE_OUTPUT,
    "cached_input_tokens": names.GEN_AI_USAGE_CACHED,
}


def _usage(usage: types.Usage, *fields: str) -> Attributes:
    return {USAGE[f]: getattr(usage, f) for f in fields if usage.HasField(f)}


def _under(parent: Span) -> Context:
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(parent)


def _context(trace: types.TraceContext) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
    return TraceContextTextMapPropagator().extract(carrier, context=Context())


def _links(trace: types.TraceContext | None) -> list[Link]:
    from opentelemetry.trace import Link, get_current_span

    if trace is None:
        return []
    context: SpanContext = get_current_span(_context(trace)).get_span_context()
    return [Link(context)] if context.is_valid else []
