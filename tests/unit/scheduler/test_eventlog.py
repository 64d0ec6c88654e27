"""The memory of events: what it keeps, for how long, and who watches."""

from __future__ import annotations

import asyncio
import re
from time import perf_counter

import pytest

from batchyard.v1 import types_pb2
from scheduler_service.core import records
from scheduler_service.core.events import DrainRequested, NodeCordoned
from scheduler_service.core.outcomes import EngineMode, Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import Attempt, Batch, Request
from scheduler_service.eventlog import FREQUENT, EventFilter, EventLog
from scheduler_service.report.event_texts import TEXTS
from scheduler_service.report.events import EventWriter, event_id, event_number
from scheduler_service.report.texts import LANGUAGES
from tests.unit.scheduler.small_world import EPOCH_NS, SmallWorld

ALL = EventFilter()


def submits(count: int, *, first: int = 1) -> list[Record]:
    return [
        Record(records.SUBMIT, n, Request(n, f"r{n}", "m", served_model="m"))
        for n in range(first, first + count)
    ]


def kinds(log: EventLog, wanted: EventFilter = ALL) -> list[str]:
    """Oldest first."""
    return [entry.kind for entry in log.newest(wanted)][::-1]


async def test_events_tell_the_story_of_a_request_in_order() -> None:
    world = SmallWorld()
    await world.join("n0")
    (request,) = await world.submit(request_id="mine", priority=7, tenant="t", task_type="chat")
    await world.pass_time(1)
    await world.finish(request)
    writer = EventWriter(world.clock, 3)
    events = [writer.write(entry) for entry in world.eventlog.newest(ALL)][::-1]
    assert [event.event for event in events] == [
        "node_joined",
        "submit",
        "dispatch_batch",
        "batch_finished",
    ]
    joined, submitted, dispatched, finished = events
    assert joined.node_id == "n0"
    assert joined.attributes["models"] == "m"
    assert submitted.request_id == "mine"
    assert (submitted.model, submitted.pool, submitted.tenant) == ("m", "m", "t")
    assert submitted.attributes["priority"] == "7"
    assert submitted.attributes["task_type"] == "chat"
    assert submitted.message == "request mine waits for m"
    assert submitted.create_time.ToNanoseconds() == EPOCH_NS + request.received_at
    (item,) = dispatched.items
    assert (item.request_id, item.attempt, item.status) == ("mine", 1, 0)
    assert dispatched.message == "1 request sent to n0"
    (item,) = finished.items
    assert item.status == types_pb2.FINISH_REASON_STOP
    assert not item.HasField("error")
    assert finished.batch_id == dispatched.batch_id != ""
    assert [event.event_id for event in events] == sorted(event.event_id for event in events)


async def test_batch_finished_says_how_each_item_ended() -> None:
    world = SmallWorld()
    await world.join("n0", slots=4, mode=EngineMode.STATIC)
    good, bad, left, late = await world.submit(4, max_attempts=1)
    await world.pass_time(1)
    await world.finish(good)
    await world.finish(bad, reason=Reason.ENGINE_ERROR, message="out of tune")
    world.driver.cancel(left.rid, Reason.CANCELLED_BY_CLIENT)
    await world.finish(late, reason=Reason.DEADLINE_EXCEEDED, message="too late")
    writer = EventWriter(world.clock, 3)
    entries = list(world.eventlog.newest(EventFilter(frozenset({records.BATCH_FINISHED}))))
    (event,) = map(writer.write, entries)
    items = entries[0].items
    assert [item.attempt for item in items[:3]] == [1] * 3
    assert len(items) == len(event.items) == 4
    ends = {item.request_id: item for item in event.items}
    assert ends[good.request_id].status == types_pb2.FINISH_REASON_STOP
    assert ends[bad.request_id].status == types_pb2.FINISH_REASON_ERROR
    assert ends[bad.request_id].error.message == "out of tune"
    assert ends[bad.request_id].error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
    assert ends[left.request_id].status == types_pb2.FINISH_REASON_CANCELLED
    assert ends[late.request_id].status == types_pb2.FINISH_REASON_EXPIRED


async def test_each_item_of_a_batch_that_was_answered_whole_is_told_as_such() -> None:
    world = SmallWorld()
    await world.join("n0", slots=2, mode=EngineMode.STATIC)
    one, two = await world.submit(2)
    await world.finish(one)
    await world.finish(two)
    (entry,) = world.eventlog.newest(EventFilter(frozenset({records.BATCH_FINISHED})))
    event = EventWriter(world.clock, 3).write(entry)
    stop = types_pb2.FINISH_REASON_STOP
    expected = [(one.request_id, stop), (two.request_id, stop)]
    assert [(item.request_id, item.status) for item in event.items] == expected


def test_a_flood_of_requests_does_not_push_out_what_is_rare() -> None:
    log = EventLog(capacity=10)
    log([Record(records.NODE_LOST, 1, node_id="n0", data={"reason": "it fell silent"})])
    log(submits(100))
    assert kinds(log) == ["node_lost", *["submit"] * 10]
    assert [entry.number for entry in log.newest(ALL)] == [*range(101, 91, -1), 1]


def test_what_is_not_public_is_no_event() -> None:
    log = EventLog()
    for kind in (records.ATTEMPT_ENDED, records.FINISHED, records.FIRST_OUTPUT):
        log([Record(kind, 1, Request(1, "r", "m"))])
    assert kinds(log) == []


def test_every_public_kind_has_a_sentence() -> None:
    assert set(TEXTS) == records.PUBLIC
    for by_language in TEXTS.values():
        variables = [sorted(re.findall(r"{(\w+)}", text)) for text in by_language.values()]
        assert len(variables) == len(LANGUAGES)
        assert variables[0] == variables[1]
    assert FREQUENT <= records.PUBLIC


def test_filters_match_kind_node_request_and_time() -> None:
    log = EventLog()
    log(submits(3))
    log([Record(records.NODE_SUSPECT, 5, node_id="n0", data={}),
         Record(records.NODE_SUSPECT, 6, node_id="n1", data={})])  # fmt: skip
    assert kinds(log, EventFilter(kinds=frozenset({"node_suspect"}))) == ["node_suspect"] * 2
    assert kinds(log, EventFilter(node_id="n1")) == ["node_suspect"]
    assert kinds(log, EventFilter(request_id="r2")) == ["submit"]
    assert len(kinds(log, EventFilter(since=3))) == 3


async def test_a_request_is_found_in_the_batches_that_it_was_a_member_of() -> None:
    world = SmallWorld()
    await world.join("n0", slots=2, mode=EngineMode.STATIC)
    first, _ = await world.submit(2)
    await world.pass_time(1)
    wanted = EventFilter(request_id=first.request_id)
    assert kinds(world.eventlog, wanted) == ["submit", "dispatch_batch"]


async def test_no_event_keeps_a_request_and_its_prompt_alive() -> None:
    world = SmallWorld()
    await world.join("n0")
    (request,) = await world.submit()
    await world.finish(request)
    reached: list[object] = list(world.eventlog.newest(ALL))
    for each in reached:
        assert not isinstance(each, Request | Record | Attempt | Batch)
        reached += each.values() if isinstance(each, dict) else ()
        reached += each if isinstance(each, tuple | list) else ()
    assert request.request_id in reached


def test_pages_go_on_below_a_number() -> None:
    log = EventLog()
    log(submits(5))
    assert [entry.number for entry in log.newest(ALL, before=3)] == [2, 1]


async def test_a_watcher_gets_what_comes_and_only_what_it_wants() -> None:
    log = EventLog()
    log(submits(2))
    watcher = log.watch(EventFilter(kinds=frozenset({"submit"})))
    waiting = asyncio.ensure_future(watcher.wait())
    log([Record(records.NODE_SUSPECT, 5, node_id="n0", data={})])
    await asyncio.sleep(0)
    assert not waiting.done()
    log(submits(2, first=3))
    await waiting
    entries, gap = watcher.take(1)
    assert [entry.request_id for entry in entries] == ["r3"]
    assert not gap
    assert [entry.request_id for entry in watcher.take(9)[0]] == ["r4"]
    log.unwatch(watcher)
    log(submits(1, first=5))
    assert watcher.take(9) == ([], False)


async def test_a_watcher_that_is_too_slow_is_told_of_the_gap_once() -> None:
    log = EventLog()
    watcher = log.watch(ALL, capacity=2)
    log(submits(3))
    entries, gap = watcher.take(9)
    assert [entry.request_id for entry in entries] == ["r2", "r3"]
    assert gap
    log(submits(1, first=4))
    assert not watcher.take(9)[1]


async def test_a_watcher_that_comes_back_gets_what_it_missed() -> None:
    log = EventLog(capacity=3)
    log(submits(5))
    watcher = log.watch(ALL, after=3)
    entries, gap = watcher.take(9)
    assert [entry.number for entry in entries] == [4, 5]
    assert not gap


@pytest.mark.parametrize("after", [1, 99])
async def test_a_watcher_that_was_away_too_long_is_told(after: int) -> None:
    """Also one that knows numbers which are yet to come: they are another process's."""
    log = EventLog(capacity=3)
    log(submits(5))
    watcher = log.watch(ALL, after=after)
    await watcher.wait()
    assert watcher.take(9)[1]


async def test_a_gap_in_other_kinds_is_none() -> None:
    log = EventLog(capacity=3)
    log([Record(records.NODE_SUSPECT, 1, node_id="n0", data={})])
    log(submits(9))
    watcher = log.watch(EventFilter(kinds=frozenset({"node_suspect"})), after=0)
    entries, gap = watcher.take(9)
    assert [entry.kind for entry in entries] == ["node_suspect"]
    assert not gap


async def test_an_operators_event_says_who_and_why() -> None:
    world = SmallWorld()
    await world.join("n0")
    heard: list[str] = []
    world.eventlog.on_asked = lambda entry: heard.append(f"{entry.kind} {entry.principal}")
    asked_by = world.eventlog.asked_by
    with asked_by("anna", records.NODE_CORDONED, "n0"):
        with asked_by("bob", records.NODE_CORDONED, "n0"):
            pass  # he asked for the same, when it was already on its way
        await world.post(
            NodeCordoned("n0", True, "new disk"), DrainRequested("n0", 0, False, "scale")
        )
    assert heard == ["node_cordoned anna"]
    writer = EventWriter(world.clock, 3)
    events = {e.kind: writer.write(e) for e in world.eventlog.newest(EventFilter(node_id="n0"))}
    assert events["node_cordoned"].principal == "anna"
    assert events["node_cordoned"].reason == "new disk"
    assert "reason" not in events["node_cordoned"].attributes
    assert events["node_draining"].principal == ""
    assert events["node_draining"].reason == "scale"
    assert events["node_draining"].message.endswith("in flight there"), (
        "the reason is its own field"
    )


async def test_event_of_an_agent_that_leaves_says_why_in_its_words() -> None:
    world = SmallWorld()
    await world.join("n0")
    why = "no engine can serve: no such model file"
    await world.post(DrainRequested("n0", 0, True, why, by_agent=True))
    (drains,) = world.eventlog.newest(EventFilter(kinds=frozenset({records.NODE_DRAINING})))
    writer = EventWriter(world.clock, 3)
    assert writer.write(drains).message == f"node n0 drains; 0 in flight there: {why}"
    assert writer.write(drains, "zh").message.endswith(f"：{why}")


def test_event_ids_grow_across_terms_and_are_read_back() -> None:
    assert event_id(1, 999) < event_id(1, 1000) < event_id(2, 1)
    assert event_number(event_id(2, 77), 2) == 77
    assert event_number(event_id(1, 77), 2) == 0
    for wrong in ("", "x", event_id(3, 1)):
        with pytest.raises(ValueError, match="no event id"):
            event_number(wrong, 2)


def test_a_record_costs_about_a_microsecond() -> None:
    """The promise is 1 us; ten times that is a mistake on any machine."""
    log, many = EventLog(), submits(2_000)
    best = 1.0
    for _ in range(5):
        began = perf_counter()
        log(many)
        best = min(best, (perf_counter() - began) / len(many))
    assert best < 10e-6


async def test_an_event_of_a_batch_reads_in_chinese_too() -> None:
    world = SmallWorld()
    await world.join("n0", slots=2)
    await world.submit(1)
    (entry,) = world.eventlog.newest(EventFilter(frozenset({records.DISPATCH_BATCH})))
    assert EventWriter(world.clock, 3).write(entry, "zh").message == "1 个请求 已发往 n0"
