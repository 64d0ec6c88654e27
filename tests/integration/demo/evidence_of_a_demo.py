"""Evidence as a demo that went well leaves it, small and made by hand, for tests to break."""

from __future__ import annotations

from typing import Any

from batchyard import Result, errors
from batchyard.cli.demo.calls import Call
from batchyard.cli.demo.evidence import Evidence
from batchyard.cli.demo.peak import MAX_TOKENS, Wish
from batchyard.cli.demo.play import MEASURE, PEAK, Outcome
from batchyard.cli.demo.stage import BACKUP, PRIMARIES, SUBSTITUTE
from batchyard.v1 import AttemptState, ErrorReason, FinishReason, InferenceResult

MODEL = "small"
KILLED, OTHER = PRIMARIES
NEW = "auto-1-1"
TRACE_ID = "ab" * 16


def sound() -> Evidence:
    """One request of each kind; all nine promises hold."""
    measured = [_call(f"measure-{n:02}", MEASURE, node_id=OTHER) for n in (1, 2)]
    calls = [
        *measured,
        _call("peak-01", PEAK, node_id=OTHER),
        _call("peak-02", PEAK, node_id=NEW, queue_ms=900),
        _call("peak-03", PEAK, node_id=BACKUP, queue_ms=400, model=SUBSTITUTE),
        _moved("peak-04"),
        _refused("peak-05"),
    ]
    outcome = Outcome(
        one_by_one_s=2.0, together_s=1.0, together=measured, killed=KILLED, caught=[calls[5]]
    )
    answered = [call.request_id for call in calls if call.result]
    return Evidence(
        calls=calls,
        outcome=outcome,
        events=_events(answered),
        report={"totals": _totals(received=7, succeeded=6, rejected=1)},
        trace=_trace(),
    )


def call_named(evidence: Evidence, request_id: str) -> Call:
    """The call with that id."""
    return next(call for call in evidence.calls if call.request_id == request_id)


def proto_of(call: Call) -> InferenceResult:
    """The message behind its result, to change."""
    assert call.result is not None
    return call.result.proto


def _call(
    request_id: str, act: str, *, node_id: str, queue_ms: int = 1, model: str = MODEL
) -> Call:
    wish = Wish(task_type="summarization", priority=5, prompt="Summarize: ...", max_wait_s=0.4)
    proto = InferenceResult(
        request_id=request_id,
        model=model,
        node_id=node_id,
        finish_reason=FinishReason.FINISH_REASON_LENGTH,
        trace_id=TRACE_ID,
    )
    proto.usage.output_tokens = MAX_TOKENS
    proto.timings.queue_duration.FromMilliseconds(queue_ms)
    proto.timings.engine.batch_size = 2
    proto.attempts.add(number=1, node_id=node_id, state=AttemptState.ATTEMPT_STATE_SUCCEEDED)
    if model == SUBSTITUTE:
        proto.degraded, proto.degrade_reason = True, "max_wait"
    call = Call(request_id, act, wish, 0.0, pieces=[(1, "an answer")], ended_at=1.0)
    call.result = Result(proto, "an answer")
    return call


def _moved(request_id: str) -> Call:
    call = _call(request_id, PEAK, node_id=BACKUP)
    attempts = proto_of(call).attempts
    attempts[0].node_id = KILLED
    attempts[0].state = AttemptState.ATTEMPT_STATE_LOST
    attempts[0].error.reason = ErrorReason.ERROR_REASON_NODE_LOST
    attempts.add(number=2, node_id=BACKUP, state=AttemptState.ATTEMPT_STATE_SUCCEEDED)
    call.pieces = [(1, "an "), (2, "answer")]
    return call


def _refused(request_id: str) -> Call:
    call = _call(request_id, PEAK, node_id="")
    call.result, call.pieces = None, []
    metadata = {"estimatedWaitMs": "300", "estimatedServiceMs": "900"}
    call.error = errors.DeadlineExceeded(
        "no chance", reason="DEADLINE_UNREACHABLE", metadata=metadata
    )
    return call


def _events(answered: list[str]) -> list[dict[str, Any]]:
    items = [{"request_id": request_id, "status": "stop"} for request_id in answered]
    return [
        *({"event": "node_joined", "node_id": node} for node in (*PRIMARIES, BACKUP, NEW)),
        {"event": "dispatch_batch", "items": list(items)},
        {"event": "degraded", "request_id": "peak-03"},
        {"event": "rejected", "request_id": "peak-05"},
        {"event": "scale_out", "message": "small: 3 to 4 nodes, 9 requests wait (threshold 5)"},
        {"event": "node_lost", "node_id": KILLED},
        {"event": "failover", "request_id": "peak-04", "node_id": KILLED},
        {"event": "batch_finished", "items": items},
    ]


def _totals(**counts: int) -> dict[str, int]:
    return {"failed": 0, "cancelled": 0, "expired": 0, **counts}


def _trace() -> dict[str, Any]:
    spans = {
        "batchyard-demo": ["chat small"],
        "batchyard-scheduler": ["schedule small", "attempt 1", "attempt 2"],
        "batchyard-agent": ["process small"],
    }
    return {"resourceSpans": [_group(service, names) for service, names in spans.items()]}


def _group(service: str, names: list[str]) -> dict[str, Any]:
    attribute = {"key": "service.name", "value": {"stringValue": service}}
    spans = [{"traceId": TRACE_ID, "name": name} for name in names]
    return {"resource": {"attributes": [attribute]}, "scopeSpans": [{"spans": spans}]}
