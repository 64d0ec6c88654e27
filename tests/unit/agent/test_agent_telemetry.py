"""Spans of sampled items."""

from __future__ import annotations

import time

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import Held, Item, ItemState, Outcome, OutcomeKind
from node_agent.engines import interface as engines
from node_agent.rpc.convert import Payload
from node_agent.rpc.results import item_result
from node_agent.telemetry.planned_ids import PlannedIds
from node_agent.telemetry.spans import SpanTracer, operation_name
from service_kit import tracing

TRACE_ID, PARENT_ID = "ab" * 16, "cd" * 8
TRACE = types.TraceContext(traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")
BATCH = types.TraceContext(traceparent=f"00-{'12' * 16}-{'34' * 8}-01")
MS = 1_000_000


class Traced:
    """A tracer with an exporter in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        ids = PlannedIds()
        self.provider = tracing.make_provider(
            "agent", self.exporter, instance_id="n1/b", environ={}, ids=ids
        )
        engine = node.EngineDescriptor(kind="llamacpp", address="http://127.0.0.1:8080/v1")
        self.tracer = SpanTracer(self.provider, ids, "n1", {"e": engine})

    def receive(self, dispatch_id: int = 1, trace: types.TraceContext | None = TRACE) -> None:
        params = inference.GenerationParams(max_tokens=9, temperature=0.0)
        item = engines.Item(
            dispatch_id=dispatch_id,
            attempt=2,
            model="m",
            request=inference.InferenceRequest(
                chat=inference.ChatInput(messages=[inference.ChatMessage(role="user")]),
                params=params,
            ),
            max_tokens=0,
            stream=True,
            priority=5,
        )
        self.tracer.received(Payload(item, trace, BATCH), 3, 99)

    def spans(self) -> dict[str, ReadableSpan]:
        self.provider.force_flush()
        return {span.name: span for span in self.exporter.get_finished_spans()}


def ended(outcome: Outcome, **fields: object) -> Held:
    base: dict[str, object] = {
        "received_ns": 0, "submitted_ns": 10 * MS, "running_ns": 20 * MS,
        "first_output_ns": 50 * MS, "finished_ns": 150 * MS, "batch_size": 4,
        "state": ItemState.FINISHED,
    }  # fmt: skip
    item = Item(dispatch_id=1, attempt=2, request_id="r1")
    return Held(item=item, engine_id="e", outcome=outcome, **{**base, **fields})  # type: ignore[arg-type]


STOPPED = engines.Result(
    finish_reason=types.FINISH_REASON_STOP, input_tokens=7, output_tokens=21, cached_input_tokens=2
)


def test_a_sampled_item_leaves_four_spans_in_the_attempts_trace() -> None:
    traced = Traced()
    traced.receive()
    told = traced.tracer.engine_traceparent(1)
    for at_ms in range(50, 150, 5):
        traced.tracer.spoke(1, at_ms * MS, 1)
    held = ended(Outcome(OutcomeKind.ENGINE, result=STOPPED))
    traced.tracer.finished(held, item_result(held))
    spans = traced.spans()
    assert set(spans) == {"process m", "engine chat m", "prefill", "decode"}
    process, engine = spans["process m"], spans["engine chat m"]
    assert all(f"{s.context.trace_id:032x}" == TRACE_ID for s in spans.values())
    assert f"{process.parent.span_id:016x}" == PARENT_ID  # type: ignore[union-attr]
    assert engine.parent.span_id == process.context.span_id  # type: ignore[union-attr]
    for name in ("prefill", "decode"):
        assert spans[name].parent.span_id == engine.context.span_id  # type: ignore[union-attr]
    assert (process.kind, engine.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert told == f"00-{TRACE_ID}-{engine.context.span_id:016x}-01"
    assert f"{process.links[0].context.trace_id:032x}" == "12" * 16


def test_span_times_are_those_that_were_noted() -> None:
    traced = Traced()
    before = time.time_ns()
    traced.receive()
    held = ended(Outcome(OutcomeKind.ENGINE, result=STOPPED))
    traced.tracer.finished(held, item_result(held))
    spans = traced.spans()
    start = spans["process m"].start_time
    assert start is not None
    assert abs(start - (before - time.monotonic_ns())) < 5_000 * MS  # wall clock
    relative = {
        name: ((s.start_time - start) // MS, (s.end_time - start) // MS)  # type: ignore[operator]
        for name, s in spans.items()
    }
    assert relative == {
        "process m": (0, 150),
        "engine chat m": (10, 150),
        "prefill": (20, 50),
        "decode": (50, 150),
    }


def test_attributes_say_what_was_asked_and_what_it_cost() -> None:
    traced = Traced()
    traced.receive()
    for _ in range(40):
        traced.tracer.spoke(1, 60 * MS, 1)
    held = ended(Outcome(OutcomeKind.ENGINE, result=STOPPED))
    traced.tracer.finished(held, item_result(held))
    spans = traced.spans()
    process = dict(spans["process m"].attributes or {})
    assert process["batchyard.request.id"] == "r1"
    assert process["batchyard.attempt"] == 2
    assert process["batchyard.session.epoch"] == "99"
    assert process["batchyard.agent.inflight"] == 3
    engine = dict(spans["engine chat m"].attributes or {})
    assert engine["gen_ai.operation.name"] == "chat"
    assert engine["gen_ai.provider.name"] == "llamacpp"
    assert engine["gen_ai.request.max_tokens"] == 9
    assert engine["gen_ai.request.temperature"] == 0.0  # said, and so not the same as unset
    assert "gen_ai.request.top_p" not in engine
    assert (engine["server.address"], engine["server.port"]) == ("127.0.0.1", 8080)
    assert engine["gen_ai.response.finish_reasons"] == ("stop",)
    assert engine["gen_ai.usage.output_tokens"] == 21
    assert (spans["prefill"].attributes or {})["gen_ai.usage.cache_read.input_tokens"] == 2
    decode = spans["decode"]
    assert (decode.attributes or {})["batchyard.tokens_per_second"] == 200.0
    progress = [(e.attributes or {})["tokens"] for e in decode.events if e.name == "progress"]
    assert progress == [2, 4, 8, 16, 32]
    assert decode.events[0].name == "first_token"


def test_an_error_is_on_the_span_by_its_reason() -> None:
    traced = Traced()
    traced.receive()
    held = ended(Outcome(OutcomeKind.EXPIRED, "DEADLINE_EXCEEDED", "late"), first_output_ns=None)
    traced.tracer.finished(held, item_result(held))
    spans = traced.spans()
    assert set(spans) == {"process m", "engine chat m", "prefill"}
    assert spans["process m"].status.status_code is StatusCode.ERROR
    assert (spans["process m"].attributes or {})["error.type"] == "DEADLINE_EXCEEDED"


def test_an_item_that_never_started_leaves_only_its_process_span() -> None:
    traced = Traced()
    traced.receive()
    never = {"submitted_ns": None, "running_ns": None, "first_output_ns": None}
    held = ended(Outcome(OutcomeKind.REFUSED, "ENGINE_BUSY", "full"), **never)
    traced.tracer.finished(held, item_result(held))
    assert set(traced.spans()) == {"process m"}


def test_an_unsampled_item_leaves_nothing_and_a_result_sent_again_no_second_span() -> None:
    traced = Traced()
    held = ended(Outcome(OutcomeKind.ENGINE, result=STOPPED))
    traced.receive(trace=None)
    assert traced.tracer.engine_traceparent(1) == ""
    traced.tracer.finished(held, item_result(held))
    assert traced.spans() == {}
    traced.receive()
    traced.tracer.finished(held, item_result(held))
    traced.tracer.finished(held, item_result(held))
    traced.provider.force_flush()
    assert len(traced.exporter.get_finished_spans()) == 4


def test_operations_are_named_as_the_conventions_do() -> None:
    text = inference.InferenceRequest(text=inference.TextInput(prompt="x"))
    embedding = inference.InferenceRequest(embedding=inference.EmbeddingInput(texts=["x"]))
    assert operation_name(text) == "chat"
    assert operation_name(embedding) == "embeddings"
    assert operation_name(inference.InferenceRequest()) == "generate_content"
