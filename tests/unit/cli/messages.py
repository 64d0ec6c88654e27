"""Messages that the tests of the command line share."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from batchyard.v1 import node_service_pb2 as nodes
from batchyard.v1 import report_pb2 as report
from batchyard.v1 import types_pb2 as types

NOON_S = 1_772_366_400  # 2026-03-01T12:00:00Z


def instant(seconds: float) -> Timestamp:
    """A time relative to noon."""
    whole = Timestamp()
    whole.FromMilliseconds(round((NOON_S + seconds) * 1000))
    return whole


def length(seconds: float) -> Duration:
    whole = Duration()
    whole.FromMicroseconds(round(seconds * 1_000_000))
    return whole


def summary(node_id: str, **changes: object) -> report.NodeSummary:
    row = report.NodeSummary(
        node_id=node_id,
        models=["small", "small-lora"],
        availability=report.NODE_AVAILABILITY_ACTIVE,
        health=report.NODE_HEALTH_HEALTHY,
        running=2,
        slots=4,
        max_batch_size=4,
        avg_latency=length(0.8125),
        failure_rate=0.05,
        can_accept=True,
        total_finished=120,
        total_failed=3,
    )
    row.MergeFrom(report.NodeSummary(**changes))  # type: ignore[arg-type]
    return row


def node(node_id: str) -> report.Node:
    return report.Node(
        node_id=node_id,
        availability=report.NODE_AVAILABILITY_ACTIVE,
        health=report.NODE_HEALTH_HEALTHY,
        summary=summary(node_id),
        descriptor=nodes.NodeDescriptor(
            hostname="host-1",
            pool="main",
            gpus=[nodes.GpuDescriptor(index=0, uuid="GPU-1", model="H200")],
            engines=[nodes.EngineDescriptor(engine_id="e1", kind="simulated", slots=4)],
        ),
        report=nodes.NodeReport(
            cpu_utilization=0.25,
            engines=[
                nodes.EngineLoad(engine_id="e1", kv_utilization=0.5, waiting_dispatch_ids=[5])
            ],
            gpus=[nodes.GpuLoad(index=0, uuid="GPU-1", utilization=0.9)],
        ),
        ledgers=[report.EngineLedger(engine_id="e1", in_flight=2)],
        agent_version="0.1.0",
        connect_time=instant(-60),
        last_seen_time=instant(0),
        round_trip=length(0.002),
        clock_offset_us=-1500,
    )


def busy_report() -> report.Report:
    """Three nodes, one of them lost, a queue in three bands, events, a diagnosis, a target."""
    lost = report.NodeSummary(
        node_id="n3",
        availability=report.NODE_AVAILABILITY_ACTIVE,
        health=report.NODE_HEALTH_LOST,
        slots=4,
        cannot_accept_reason="lost",
    )
    message = report.Report(
        report_name="Batchyard report",
        generate_time=instant(0.25),
        window=length(300),
        queue_size=12,
        oldest_wait=length(3.2),
        nodes=[summary("n1"), summary("n2", running=2), lost],
        totals=report.Totals(received=140, succeeded=120, failed=2, expired=1, failovers=1),
        window_totals=report.Totals(received=40, succeeded=30),
        scheduler_version="0.1.0",
        uptime=length(125),
    )
    message.queues.extend(queue(band, depth) for band, depth in ((10, 2), (5, 6), (1, 4)))
    _add_events(message)
    message.diagnosis.add(
        code="queue_long",
        severity=report.DIAGNOSIS_SEVERITY_WARNING,
        text="The queue is long.",
        reason="12 wait, the oldest for 3.2 s",
    )
    message.pools.add(pool="main", models=["small"], slots=8, running=4).scale.CopyFrom(
        report.ScaleTarget(
            ready=2, starting=1, desired=3, min=1, max=4, pressure=1.5, reason="busy"
        )
    )
    return message


def queue(band: int, depth: int, **changes: object) -> report.QueueStats:
    row = report.QueueStats(
        pool="main",
        model="small",
        request_class=types.REQUEST_CLASS_INTERACTIVE,
        priority=band,
        depth=depth,
        oldest_wait=length(band / 5),
        arrivals_per_second=1.5,
    )
    row.MergeFrom(report.QueueStats(**changes))  # type: ignore[arg-type]
    return row


def _add_events(message: report.Report) -> None:
    attributes = {"to": "n1", "event": "an attribute that is called as a field"}
    message.events.add(
        event_id="7",
        create_time=instant(-2),
        event="failover",
        message="r1 moves from n2 to n1",
        request_id="r1",
        node_id="n2",
        attributes=attributes,
    )
    batch = message.events.add(
        event_id="8", create_time=instant(-1), event="batch_finished", batch_id="b1", node_id="n1"
    )
    batch.items.add(request_id="r1", status=types.FINISH_REASON_STOP, attempt=2)
    failed = batch.items.add(request_id="r2", status=types.FINISH_REASON_ERROR, attempt=1)
    failed.error.reason = types.ERROR_REASON_ENGINE_ERROR
