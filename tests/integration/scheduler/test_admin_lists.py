"""AdminService: queues, requests and events, page by page."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import report_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND
from scheduler_service.eventlog import WATCH_BUFFER
from tests.integration.scheduler.admin_world import refusal, serving
from tests.unit.scheduler.small_world import EPOCH_NS, SmallWorld


async def test_queues_are_listed_by_pool_class_and_priority() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", models=["m", "other"])
        await world.submit(3, priority=2)
        await world.submit(2, priority=9, tenant="t")
        await world.submit(1, model="other", priority=5)
        await world.pass_time(1)
        first = await served.stub.ListQueues(pb.ListQueuesRequest(page_size=2))
        rest = await served.stub.ListQueues(
            pb.ListQueuesRequest(page_size=2, page_token=first.next_page_token)
        )
        mine = await served.stub.ListQueues(pb.ListQueuesRequest(pool="m", tenant="t"))
        none = await served.stub.ListQueues(pb.ListQueuesRequest(pool="m", model="other"))
    rows = [*first.queues, *rest.queues]
    assert [(row.pool, row.priority) for row in rows] == [("m", 9), ("m", 2), ("other", 5)]
    assert [row.depth for row in rows] == [2, 2, 1]
    assert all(row.oldest_wait.ToSeconds() == 1 for row in rows)
    assert rows[1].arrivals_per_second == pytest.approx(3.0)
    assert [(row.tenant, row.depth) for row in mine.queues] == [("t", 2)]
    assert not none.queues


async def test_requests_are_listed_newest_first_open_and_finished() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=3)
        requests = await world.submit(5)
        await world.finish(requests[1])
        first = await served.stub.ListRequests(pb.ListRequestsRequest(page_size=3))
        await world.submit(2)  # newer than the cursor: shifts nothing
        rest = await served.stub.ListRequests(
            pb.ListRequestsRequest(page_size=3, page_token=first.next_page_token)
        )
    ids = [row.request_id for row in [*first.requests, *rest.requests]]
    assert ids == ["r5", "r4", "r3", "r2", "r1"]
    done = rest.requests[0]
    assert done.state == report_pb2.REQUEST_STATE_FINISHED
    assert done.finish_reason == types_pb2.FINISH_REASON_STOP
    assert done.node_id == "n0"
    assert first.requests[0].state == report_pb2.REQUEST_STATE_QUEUED


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (pb.RequestFilter(), ["r4", "r3", "r2", "r1"]),
        (pb.RequestFilter(request_ids=["r1", "r3", "none"]), ["r3", "r1"]),
        (pb.RequestFilter(tenant="t"), ["r2"]),
        (pb.RequestFilter(model="other"), ["r3"]),
        (pb.RequestFilter(node_id="n0"), ["r3", "r1"]),
        (pb.RequestFilter(min_priority=6), ["r4", "r2"]),
        (pb.RequestFilter(min_priority=6, max_priority=8), ["r2"]),
        (pb.RequestFilter(states=[report_pb2.REQUEST_STATE_QUEUED]), ["r4", "r2"]),
        (pb.RequestFilter(request_classes=[types_pb2.REQUEST_CLASS_JOB]), []),
        (pb.RequestFilter(job_id="j"), []),
    ],
)
async def test_each_field_of_the_filter_must_match(wanted: Any, ids: list[str]) -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", models=["m", "other"], slots=2)
        await world.submit(1)
        await world.submit(1, model="other")
        (first, second) = world.driver.scheduler.state.requests.values()
        second.request_id, first.request_id = "r3", "r1"
        await world.submit(1, priority=8, tenant="t", request_id="r2")
        await world.submit(1, priority=9, request_id="r4")
        listed = await served.stub.ListRequests(pb.ListRequestsRequest(filter=wanted))
    assert sorted((row.request_id for row in listed.requests), reverse=True) == ids


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (pb.RequestFilter(min_priority=11), "filter.min_priority"),
        (pb.RequestFilter(max_priority=-1), "filter.max_priority"),
        (pb.RequestFilter(states=[0]), "filter.states[0]"),
        (pb.RequestFilter(request_classes=[1, 7]), "filter.request_classes[1]"),
        (pb.RequestFilter(request_ids=["x"] * 1001), "filter.request_ids"),
    ],
)
async def test_a_wrong_filter_names_the_field(wanted: Any, field: str) -> None:
    async with serving(SmallWorld()) as served:
        for call in (
            served.stub.ListRequests(pb.ListRequestsRequest(filter=wanted)),
            served.stub.CancelMatching(pb.CancelMatchingRequest(filter=wanted)),
        ):
            code, _, _, at = await refusal(call)
            assert (code, at) == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_page_sizes_and_tokens_are_checked() -> None:
    async with serving(SmallWorld()) as served:
        await served.world.join("n0")
        await served.world.submit(60)
        listed = await served.stub.ListRequests(pb.ListRequestsRequest())
        assert len(listed.requests) == 50
        whole = await served.stub.ListRequests(pb.ListRequestsRequest(page_size=99_999))
        assert len(whole.requests) == 60
        code, _, _, field = await refusal(
            served.stub.ListRequests(pb.ListRequestsRequest(page_size=-1))
        )
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "page_size")
        for token in ("nonsense", listed.next_page_token[:-4]):
            wrong = pb.ListRequestsRequest(
                page_token=token, filter=pb.RequestFilter(tenant="another filter")
            )
            _, _, _, field = await refusal(served.stub.ListRequests(wrong))
            assert field == "page_token"
        other = pb.ListRequestsRequest(
            page_token=listed.next_page_token, filter=pb.RequestFilter(tenant="t")
        )
        _, _, _, field = await refusal(served.stub.ListRequests(other))
        assert field == "page_token"


async def test_one_request_is_shown_with_its_attempts() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=2)
        await world.join("n1", slots=2)
        (request,) = await world.submit(1, request_id="mine")
        await world.pass_time(1)
        await world.finish(request, reason=Reason.ENGINE_ERROR, output_tokens=3, message="oops")
        await world.pass_time(1)
        await world.finish(request, output_tokens=7)
        shown = await served.stub.GetRequest(pb.GetRequestRequest(request_id="mine"))
    assert shown.request.attempts == 2
    assert [attempt.number for attempt in shown.attempts] == [1, 2]
    assert shown.attempts[0].state == types_pb2.ATTEMPT_STATE_FAILED
    assert shown.attempts[0].error.message == "oops"
    assert shown.attempts[1].state == types_pb2.ATTEMPT_STATE_SUCCEEDED
    assert shown.attempts[1].batch_size == 1
    assert shown.usage.output_tokens == 7
    assert shown.usage.wasted_output_tokens == 3
    assert shown.timings.finish_time.ToNanoseconds() == EPOCH_NS + request.finished_at
    assert not shown.HasField("error")


async def test_an_id_that_two_tenants_use_needs_the_tenant() -> None:
    async with serving(SmallWorld()) as served:
        await served.world.join("n0")
        await served.world.submit(1, request_id="same", tenant="a")
        await served.world.submit(1, request_id="same", tenant="b", priority=9)
        get = served.stub.GetRequest
        code, _, _, field = await refusal(get(pb.GetRequestRequest(request_id="same")))
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "tenant")
        shown = await get(pb.GetRequestRequest(request_id="same", tenant="b"))
        assert shown.request.priority == 9
        code, _, metadata, _ = await refusal(get(pb.GetRequestRequest(request_id="none")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert metadata == {"resource": "request/none"}


async def test_matching_requests_are_cancelled_by_the_operators_word() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0")
        requests = await world.submit(3, tenant="t")
        (other,) = await world.submit(1)
        cancel = served.stub.CancelMatching
        wanted = pb.RequestFilter(tenant="t")
        code, _, _, field = await refusal(cancel(pb.CancelMatchingRequest()))
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "filter")
        tried = await cancel(pb.CancelMatchingRequest(filter=wanted, validate_only=True))
        assert (tried.count, len(world.driver.scheduler.state.requests)) == (3, 4)
        done = await cancel(pb.CancelMatchingRequest(filter=wanted, reason="wrong model"))
        assert list(done.request_ids) == [r.request_id for r in requests]
        await world.until(lambda: all(r.reason is Reason.CANCELLED_BY_ADMIN for r in requests))
        assert not other.reason
        listed = await served.stub.ListEvents(pb.ListEventsRequest(events=["cancelled"]))
    (cancelled,) = [e for e in listed.events if e.request_id == requests[0].request_id]
    assert cancelled.attributes["reason"] == "CANCELLED_BY_ADMIN"
    assert cancelled.message.endswith("was cancelled: by anonymous@127.0.0.1: wrong model")


async def test_events_are_listed_newest_first_page_by_page() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=9)
        await world.submit(4)
        await world.pass_time(10)
        await world.submit(1)
        asked = pb.ListEventsRequest(events=["submit"], page_size=3)
        first = await served.stub.ListEvents(asked)
        asked.page_token = first.next_page_token
        rest = await served.stub.ListEvents(asked)
        late = pb.ListEventsRequest(events=["submit"])
        late.start_time.FromNanoseconds(EPOCH_NS + world.clock.now() - SECOND)
        recent = await served.stub.ListEvents(late)
    ids = [event.request_id for event in [*first.events, *rest.events]]
    assert ids == ["r5", "r4", "r3", "r2", "r1"]
    assert rest.next_page_token == ""
    assert [event.request_id for event in recent.events] == ["r5"]


async def test_events_are_watched_from_where_the_reader_left_off() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=9)
        await world.submit(2)
        (old,) = (await served.stub.ListEvents(pb.ListEventsRequest(page_size=1))).events
        await world.submit(1)
        call = served.stub.WatchEvents(
            pb.WatchEventsRequest(events=["submit"], after_event_id=old.event_id)
        )
        first = await call.read()
        assert [event.request_id for event in first.events] == ["r3"]
        await world.submit(1)
        second = await call.read()
        assert [event.request_id for event in second.events] == ["r4"]
        assert not first.gap
        assert not second.gap
        call.cancel()
        await world.until(lambda: not world.eventlog.watchers)


async def test_a_reader_that_is_too_slow_is_told_of_the_gap() -> None:
    async with serving(SmallWorld()) as served:
        world = served.world
        await world.join("n0", slots=1)
        call = served.stub.WatchEvents(pb.WatchEventsRequest(events=["rejected"]))
        await world.until(lambda: world.eventlog.watchers)
        await world.submit(WATCH_BUFFER + 500, model="unknown")
        received, gap = 0, False
        while received < WATCH_BUFFER:
            message = await call.read()
            received += len(message.events)
            gap |= message.gap
        assert gap
        call.cancel()


async def test_an_id_of_no_event_is_refused() -> None:
    async with serving(SmallWorld()) as served:
        call = served.stub.WatchEvents(pb.WatchEventsRequest(after_event_id="nonsense"))
        code, _, _, field = await refusal(call.read())
    assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "after_event_id")
