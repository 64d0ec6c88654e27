"""What does a record add to its second? One function per kind of record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scheduler_service.core import records
from scheduler_service.core.attribution import Fault, fault_of
from scheduler_service.core.outcomes import AttemptState, Outcome, Reason, RequestClass
from scheduler_service.core.records import Record
from scheduler_service.core.types import Attempt, Duration
from scheduler_service.report import histogram
from scheduler_service.report.buckets import ROWS_MAX, Bucket

if TYPE_CHECKING:
    from scheduler_service.report.statistics import Statistics

NODES_REMEMBERED: Final = 10_000

# Members of enumerations on the path of every request: a look-up costs 70 ns each.
_INTERACTIVE: Final = RequestClass.INTERACTIVE
_ANSWERED: Final = AttemptState.SUCCEEDED
_REFUSED: Final = AttemptState.REFUSED
_REJECTED: Final = Outcome.REJECTED
_SUCCEEDED: Final = Outcome.SUCCEEDED
_MODEL_NOT_FOUND: Final = Reason.MODEL_NOT_FOUND


def _submitted(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    request = record.request
    assert request is not None
    bucket.flow(request.served_model, request.request_class, request.priority).arrivals += 1


def _dispatched(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    batch = record.batch
    assert batch is not None
    inputs = 0
    flow, band = None, (_INTERACTIVE, 0)
    for attempt in batch.attempts:
        request = attempt.request
        if flow is None or band != (request.request_class, request.priority):
            band = request.request_class, request.priority
            flow = bucket.flow(batch.model, *band)
        flow.departures += 1
        flow.waited += attempt.queue_wait
        histogram.add(flow.waits, attempt.queue_wait)
        if request.tenant:
            histogram.add(bucket.tenant(request.tenant), attempt.queue_wait)
        inputs += attempt.inputs
    batches, size = bucket.batches_of(batch.model), len(batch.attempts)
    batches.sizes[size] = batches.sizes.get(size, 0) + 1
    batches.waits.total += batch.oldest_wait
    histogram.add(batches.waits.bars, batch.oldest_wait)
    if batch.atomic:
        fill = bucket.fill(batch.model)
        fill[0] += 1
        fill[1] += inputs
        fill[2] += batch.engine.max_batch


def _attempt_ended(statistics: Statistics, bucket: Bucket, record: Record) -> None:
    attempt = record.attempt
    assert attempt is not None
    node_id, state = record.node_id, attempt.state
    took = attempt.ended_at - attempt.started_at
    if state is _ANSWERED:
        count = bucket.node(node_id)
        count.succeeded += 1
        latency = bucket.latency(count, attempt.model)
        latency[0] += 1
        latency[1] += took
        totals = statistics.node_totals.get(node_id)
        if totals is None:
            totals = statistics.node_totals[node_id] = [0, 0]
        totals[0] += 1
    elif state is AttemptState.LOST or (
        state is AttemptState.FAILED and fault_of(attempt.reason) is not Fault.CALLER
    ):
        bucket.node(node_id).failed += 1
        statistics.node_totals.setdefault(node_id, [0, 0])[1] += 1
    if state is not _REFUSED:
        _charge(bucket, attempt, node_id, took)


def _charge(bucket: Bucket, attempt: Attempt, node_id: str, took: Duration) -> None:
    request = attempt.request
    cost = bucket.cost(request.tenant, attempt.model, request.task_type, node_id)
    slot_ns = took * attempt.inputs
    slots = 0
    for engine in attempt.engine.node.engines.values():
        slots += engine.spec.slots
    cost.slot_ns += slot_ns
    cost.node_ns += slot_ns // (slots or 1)
    cost.output_tokens += attempt.output_tokens


def _finished(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    request = record.request
    assert request is not None
    if request.attempts:
        node_id = request.attempts[-1].node.node_id
        bucket.cost(request.tenant, request.served_model, request.task_type, node_id).requests += 1
    model = request.served_model
    if request.outcome is _REJECTED and request.reason is _MODEL_NOT_FOUND:
        model = ""  # a caller's word, not a name of ours: any number of them is one
    bucket.count_ends((request.outcome, model, request.priority, request.task_type))
    took = request.finished_at - request.received_at
    if request.outcome is not _REJECTED:
        bucket.note_slow(took, request)
    if request.outcome is _SUCCEEDED:
        durations = bucket.durations_of(request.served_model)
        durations.total += took
        histogram.add(durations.bars, took)
        output = request.output
        if output is not None and output.tokens > 1 and output.begun_at:
            each = (request.finished_at - output.begun_at) // (output.tokens - 1)
            times = bucket.token_times_of(request.served_model)
            times.total += each
            histogram.add(times.bars, each)


def _first_output(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    request = record.request
    assert request is not None
    took = record.at - request.received_at
    first_outputs = bucket.first_outputs_of(request.served_model)
    first_outputs.total += took
    histogram.add(first_outputs.bars, took)


def _degraded(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    data = record.data or {}
    bucket.count_degrades((data["source"], record.pool, data["reason"]))


def _rejected(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    assert record.request is not None
    reason = record.request.reason.name
    bucket.rejects[reason] = bucket.rejects.get(reason, 0) + 1


def _lost(statistics: Statistics, bucket: Bucket, record: Record) -> None:
    statistics.nodes_lost += 1
    if len(bucket.lost) < ROWS_MAX:
        bucket.lost[record.node_id] = None


def _joined(statistics: Statistics, _bucket: Bucket, record: Record) -> None:
    statistics.node_joined = True
    known = statistics.node_totals
    known.setdefault(record.node_id, [0, 0])
    while len(known) > NODES_REMEMBERED:
        del known[next(iter(known))]


COUNT: Final[dict[str, Callable[[Statistics, Bucket, Record], None]]] = {
    records.SUBMIT: _submitted,
    records.DISPATCH_BATCH: _dispatched,
    records.ATTEMPT_ENDED: _attempt_ended,
    records.FINISHED: _finished,
    records.FIRST_OUTPUT: _first_output,
    records.DEGRADED: _degraded,
    records.REJECTED: _rejected,
    records.NODE_LOST: _lost,
    records.NODE_JOINED: _joined,
}
