"""AdminService: the report, nodes, and the contract as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import node_service_pb2, report_pb2, types_pb2
from scheduler_service.core.events import SessionBroken
from scheduler_service.core.outcomes import NodeAvailability, Reason
from scheduler_service.core.settings import AutoscaleSettings, CoreSettings
from scheduler_service.rpc.admin import SERVICE
from tests.integration.scheduler.admin_world import View, refusal, serving
from tests.unit.scheduler.small_world import EPOCH_NS, SmallWorld


async def test_the_report_carries_all_that_the_article_asks_for() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=2, models=["m", "other"])
        served.views.by_node["n0"] = View(
            node_service_pb2.NodeDescriptor(
                engines=[node_service_pb2.EngineDescriptor(slots_assumed=True)],
                price_per_hour=types_pb2.Money(currency="USD", micros=3_600_000_000),
            )
        )
        requests = await world.submit(5, tenant="t", task_type="chat", priority=8)
        await world.pass_time(4)
        await world.finish(requests[0], output_tokens=10)
        await world.finish(requests[1], reason=Reason.ENGINE_ERROR)
        await world.submit(1, model="unknown")
        report = (await served.stub.GetReport(pb.GetReportRequest())).report
        gone = served.views.by_node.pop("n0").descriptor
        assert gone is not None
        served.views.last_prices["n0"] = gone.price_per_hour
        later = (await served.stub.GetReport(pb.GetReportRequest())).report

    assert report.report_name == "Batchyard inference scheduling report"
    assert report.generate_time.ToNanoseconds() == EPOCH_NS + world.clock.now()
    assert report.window.ToSeconds() == 60
    assert report.queue_size == len(world.driver.scheduler.state.pools["m"].queue) > 0
    assert report.oldest_wait.ToSeconds() == 4
    assert report.scheduler_version == "1.2.3"
    (node,) = report.nodes
    assert node.node_id == "n0"
    assert list(node.models) == ["m", "other"]
    assert node.health == report_pb2.NODE_HEALTH_HEALTHY
    assert (node.slots, node.running, node.max_batch_size) == (2, 2, 2)
    assert node.avg_latency.ToSeconds() == 4
    assert node.failure_rate == 0.5
    assert (node.total_finished, node.total_failed) == (1, 1)
    assert (node.can_accept, node.cannot_accept_reason) == (False, "slots_full")
    assert node.slots_assumed
    assert node.utilization == 1.0
    totals = report.totals
    assert (totals.received, totals.succeeded, totals.rejected, totals.expired) == (6, 1, 1, 0)
    assert (totals.failovers, totals.output_tokens) == (1, 10)
    assert report.window_totals.received == 6
    (queue,) = [q for q in report.queues if q.pool == "m"]
    assert (queue.priority, queue.request_class) == (8, types_pb2.REQUEST_CLASS_INTERACTIVE)
    assert queue.wait_p99.ToSeconds() >= 3
    assert [pool.pool for pool in report.pools] == ["m", "other"]
    assert report.pools[0].floor_every == 8
    assert report.pools[0].start_bound == 8 * report.queue_size
    assert not report.pools[0].HasField("scale")
    assert [row.request_id for row in report.slowest] == [requests[0].request_id]
    (cost,) = report.costs
    assert (cost.tenant, cost.model, cost.task_type, cost.requests) == ("t", "m", "chat", 1)
    assert cost.slot_time.ToSeconds() == 8
    assert cost.cost.micros == pytest.approx(8 / 2 * 1_000_000, rel=0.01)
    assert later.costs[0].cost == cost.cost, "work on a node that is gone costs what it did"
    assert report.events[-1].event == "rejected"
    assert [row.severity for row in report.diagnosis]


async def test_the_report_is_told_in_chinese() -> None:
    async with serving(SmallWorld()) as served:
        await served.world.join("n0")
        await served.world.submit(9)
        await served.world.pass_time(5)
        request = pb.GetReportRequest(
            language="zh", omit_nodes=True, omit_queues=True, max_events=2
        )
        report = (await served.stub.GetReport(request)).report
    assert report.report_name == "Batchyard 推理调度报告"
    assert not report.nodes
    assert not report.queues
    assert len(report.events) == 2
    said = {row.code: row for row in report.diagnosis}
    assert said["queue_long"].text == "m 的队列过长，节点处理不过来。"
    assert "平均有 8 个请求等待" in said["queue_long"].reason
    assert said["queue_long"].severity == report_pb2.DIAGNOSIS_SEVERITY_WARNING
    assert said["queue_long"].metadata["pool"] == "m"


async def test_a_scaled_pool_shows_its_target() -> None:
    scaled = CoreSettings(autoscale=AutoscaleSettings(enabled=True, min_nodes=1, max_nodes=3))
    async with serving(SmallWorld(scaled)) as served:
        await served.world.join("n0")
        await served.world.submit(9)
        await served.world.pass_time(3)
        report = (await served.stub.GetReport(pb.GetReportRequest())).report
    scale = report.pools[0].scale
    assert (scale.ready, scale.starting, scale.desired) == (1, 1, 2)
    assert (scale.min, scale.max) == (1, 3)
    assert "requests wait" in scale.reason
    assert scale.HasField("decide_time")
    assert scale.pressure >= 1.0


async def test_filling_up_to_the_minimum_is_a_decision_with_its_time() -> None:
    scaled = CoreSettings(autoscale=AutoscaleSettings(enabled=True, min_nodes=2, max_nodes=3))
    async with serving(SmallWorld(scaled)) as served:
        await served.world.join("n0")
        await served.world.pass_time(2)
        report = (await served.stub.GetReport(pb.GetReportRequest())).report
    scale = report.pools[0].scale
    assert scale.reason == "below the minimum of 2"
    assert scale.HasField("decide_time")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.GetReportRequest(window=Duration()), "window"),
        (pb.GetReportRequest(window=Duration(seconds=-1)), "window"),
        (pb.GetReportRequest(max_events=1001), "max_events"),
    ],
)
async def test_a_wrong_report_request_names_the_field(request_: Any, field: str) -> None:
    async with serving(SmallWorld()) as served:
        code, reason, _, at = await refusal(served.stub.GetReport(request_))
    assert (code, reason, at) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", field)


async def test_reports_are_watched_until_the_port_closes() -> None:
    async with serving(SmallWorld()) as served:
        call = served.stub.WatchReport(pb.WatchReportRequest(interval=Duration(nanos=100_000_000)))
        reports = [(await call.read()).report for _ in range(3)]
        assert all(report.report_name for report in reports)
        served.port.close()
        while await call.read() is not grpc.aio.EOF:
            pass
        assert await call.code() is grpc.StatusCode.OK


async def test_too_short_an_interval_is_refused() -> None:
    async with serving(SmallWorld()) as served:
        call = served.stub.WatchReport(pb.WatchReportRequest(interval=Duration(nanos=99_000_000)))
        code, _, _, field = await refusal(call.read())
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "interval")
        wrong = pb.WatchReportRequest(report=pb.GetReportRequest(max_events=9999))
        _, _, _, field = await refusal(served.stub.WatchReport(wrong).read())
        assert field == "report.max_events"


async def test_a_node_is_shown_whole() -> None:
    async with serving(SmallWorld()) as served:
        node = await served.world.join("n0", slots=4)
        served.views.by_node["n0"] = View(
            node_service_pb2.NodeDescriptor(hostname="host"),
            node_service_pb2.NodeReport(cpu_utilization=0.5),
        )
        await served.world.submit(2)
        shown = (await served.stub.GetNode(pb.GetNodeRequest(node_id="n0"))).node
        code, reason, metadata, _ = await refusal(
            served.stub.GetNode(pb.GetNodeRequest(node_id="x"))
        )
        _, _, _, field = await refusal(served.stub.GetNode(pb.GetNodeRequest()))
    assert shown.descriptor.hostname == "host"
    assert shown.report.cpu_utilization == 0.5
    assert (shown.boot_id, shown.session_epoch) == (node.boot_id, node.epoch)
    assert shown.round_trip.ToMilliseconds() == 2
    assert shown.clock_offset_us == -5
    assert shown.agent_version == "0.1.0"
    (ledger,) = shown.ledgers
    assert (ledger.in_flight, ledger.charged_inputs) == (2, 2)
    assert ledger.credit.total_inputs == 1_000_000
    assert not shown.HasField("drain")
    assert shown.summary.can_accept
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    assert metadata == {"resource": "node/x"}
    assert field == "node_id"


async def test_nodes_are_listed_page_by_page_and_filtered() -> None:
    async with serving(SmallWorld()) as served:
        for node_id in ("c", "a", "b"):
            await served.world.join(node_id, models=["m"] if node_id != "b" else ["other"])
        first = await served.stub.ListNodes(pb.ListNodesRequest(page_size=2))
        await served.world.join("aa")  # comes in before the cursor: shifts nothing
        rest = await served.stub.ListNodes(
            pb.ListNodesRequest(page_size=2, page_token=first.next_page_token)
        )
        pool = await served.stub.ListNodes(pb.ListNodesRequest(pool="other"))
        lost = await served.stub.ListNodes(
            pb.ListNodesRequest(healths=[report_pb2.NODE_HEALTH_LOST])
        )
        code, _, _, field = await refusal(served.stub.ListNodes(pb.ListNodesRequest(healths=[99])))
    assert [node.node_id for node in first.nodes] == ["a", "b"]
    assert [node.node_id for node in rest.nodes] == ["c"]
    assert rest.next_page_token == ""
    assert [node.node_id for node in pool.nodes] == ["b"]
    assert not lost.nodes
    assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "healths[0]")


async def test_a_cordoned_node_gets_no_work_until_it_is_uncordoned() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0")
        asked = pb.CordonNodeRequest(node_id="n0", reason="new disk")
        node = (await served.stub.CordonNode(asked)).node
        assert node.availability == report_pb2.NODE_AVAILABILITY_CORDONED
        assert node.summary.cannot_accept_reason == "cordoned"
        assert node.state_reason == "new disk"
        (request,) = await world.submit(1)
        assert not request.attempts
        node = (await served.stub.UncordonNode(pb.UncordonNodeRequest(node_id="n0"))).node
        assert node.availability == report_pb2.NODE_AVAILABILITY_ACTIVE
        await world.until(lambda: bool(request.attempts))
        events = (
            await served.stub.ListEvents(pb.ListEventsRequest(events=["node_cordoned"]))
        ).events
    assert [event.reason for event in events] == ["new disk"]
    assert events[0].principal == "anonymous@127.0.0.1"


async def test_a_drain_shows_its_progress_and_its_proof() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=2)
        requests = await world.submit(3)
        node = (await served.stub.DrainNode(pb.DrainNodeRequest(node_id="n0"))).node
        assert node.availability == report_pb2.NODE_AVAILABILITY_DRAINING
        assert (node.drain.remaining, node.drain.HasField("end_time")) == (2, False)
        await world.pass_time(3600)  # no grace was given: there is no limit
        assert world.nodes["n0"].availability is NodeAvailability.DRAINING
        await world.finish(*requests[:2])
        node = (await served.stub.GetNode(pb.GetNodeRequest(node_id="n0"))).node
        assert node.availability == report_pb2.NODE_AVAILABILITY_DRAINED
        assert (node.drain.finished, node.drain.moved, node.drain.lost) == (2, 0, 0)
        assert list(node.drain.finished_request_ids) == [r.request_id for r in requests[:2]]
        again = (await served.stub.DrainNode(pb.DrainNodeRequest(node_id="n0"))).node
        assert again.availability == report_pb2.NODE_AVAILABILITY_DRAINED


async def test_a_drain_with_a_grace_moves_the_rest() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0")
        await world.join("n1")
        (request,) = await world.submit(1)
        asked = pb.DrainNodeRequest(
            node_id=request.attempts[0].node.node_id, grace=Duration(seconds=1), terminate=True
        )
        await served.stub.DrainNode(asked)
        await world.pass_time(4)
        assert len(request.attempts) == 2
        code, _, _, field = await refusal(
            served.stub.DrainNode(pb.DrainNodeRequest(node_id="n0", grace=Duration(seconds=-1)))
        )
    assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "grace")


async def test_a_lost_or_unknown_node_cannot_be_changed() -> None:
    async with serving(SmallWorld()) as served:
        node = await served.world.join("n0")
        await served.world.post(SessionBroken("n0", node.epoch))
        await served.world.pass_time(3)
        for name in ("n0", "never"):
            code, reason, metadata, _ = await refusal(
                served.stub.CordonNode(pb.CordonNodeRequest(node_id=name))
            )
            assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
            assert metadata["resource"] == f"node/{name}"
        _, _, _, field = await refusal(
            served.stub.CordonNode(pb.CordonNodeRequest(node_id="n0", reason="x" * 257))
        )
    assert field == "reason"


@dataclass
class CallDetails:
    """What a generic handler is asked with."""

    method: str
    invocation_metadata: tuple[()] = ()


async def test_every_method_of_the_contract_is_served() -> None:
    async with serving(SmallWorld()) as served:
        generic: Any = served.port.handlers()
        for method in pb.DESCRIPTOR.services_by_name["AdminService"].methods:
            handler = generic.service(CallDetails(f"/{SERVICE}/{method.name}"))
            assert handler is not None, method.name
            assert handler.response_streaming == method.server_streaming


async def test_a_string_that_is_no_utf8_names_its_field() -> None:
    async with serving(SmallWorld()) as served:
        call = served.channel.unary_unary(f"/{SERVICE}/GetNode")
        code, _, _, field = await refusal(call(b"\x0a\x02\xff\xfe"))
    assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "node_id")


async def test_a_busy_minute_does_not_push_rare_events_out_of_the_report() -> None:
    """Half of the room is theirs; the rest goes to the newest of all, and time orders them."""
    async with serving(SmallWorld()) as served:
        await served.world.join("n0")
        await served.world.submit(50)
        asked = pb.GetReportRequest(max_events=10)
        events = (await served.stub.GetReport(asked)).report.events
        kinds = [event.event for event in events]
        assert len(kinds) == 10
        assert kinds[0] == "node_joined"
        assert set(kinds[1:]) <= {"submit", "dispatch_batch"}
        ids = [event.event_id for event in events]
        assert ids == sorted(ids)
