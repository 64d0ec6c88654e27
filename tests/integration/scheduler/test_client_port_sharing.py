"""One request, several callers: the same id twice, repeats, conflicts, and coming back later."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from node_agent.engines.simulated_text import check_text, is_seamless
from scheduler_service.core.outcomes import Outcome
from tests.integration.scheduler.callers import Answer, Exchange
from tests.integration.scheduler.harness import (
    SINGLE,
    SOON_S,
    STREAMS,
    WAYS,
    World,
    prompt,
    running_world,
    seconds,
)

GRACE = seconds(20)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as running:
        await running.add_agent(slots=4)
        yield running


async def stream_five(
    world: World, way: str = "multiplex_stream", text: str = "[[stall=5]]"
) -> Exchange:
    """A call that has been sent five tokens and hangs."""
    exchange = await world.begin(way, prompt(text, request_id="shared"), detach_grace=GRACE)
    await exchange.until(lambda: exchange.answer.text.count(" ") == 5)
    return exchange


def point(exchange: Exchange, offset: int, **fields: int) -> scheduler_service_pb2.AttachPoint:
    """What a caller has that comes back."""
    output_id = exchange.answer.started[-1].output_id
    return scheduler_service_pb2.AttachPoint(
        output_id=fields.pop("output_id", output_id), offsets=[{"offset": offset, **fields}]
    )


async def cancel_by_id(world: World, request_id: str = "shared") -> None:
    message = scheduler_service_pb2.CancelRequestsRequest(request_ids=[request_id])
    await world.method("CancelRequests")(message)


def whole(answer: Answer) -> str:
    """The text, wherever it is, of an answer that must have succeeded."""
    assert answer.error is None
    return answer.text


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
async def test_same_id_twice_at_once_runs_once(world: World, first: str, second: str) -> None:
    """Behaviour 85: one execution, two equal answers; whichever ways they came in."""
    request = prompt("[[sleep=150ms]][[tokens=20]]", request_id="twice")
    one = await world.begin(first, request)
    await world.until(lambda: world.running() == 1)
    two = await world.begin(second, request)
    texts = [whole(await exchange.wait()) for exchange in (one, two)]
    assert texts[0] == texts[1]
    assert check_text(texts[0])[0][1:] == (0, 19)
    totals = world.state.totals
    assert (totals.received, totals.batches) == (1, 1)
    if second in STREAMS:
        assert two.answer.accepted[0].attached
        if first in STREAMS:
            assert two.answer.started[0].output_id == one.answer.started[0].output_id
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_finished_answer_is_given_again(world: World, way: str) -> None:
    request = prompt("[[tokens=6]]", request_id="again", timeout=seconds(9))
    first = await world.ask(way, request)
    request.timeout.CopyFrom(seconds(3))  # not part of what the id stands for
    for again in WAYS:
        answer = await world.ask(again, request)
        assert answer.result is not None
        assert answer.result.replayed
        assert whole(answer) == whole(first)
    assert world.state.totals.received == 1


@pytest.mark.parametrize("way", WAYS)
async def test_failure_that_will_repeat_is_given_again(world: World, way: str) -> None:
    request = prompt("word " * 40_000, request_id="too-long")
    first, second = [await world.ask(way, request) for _ in range(2)]
    assert first.reason == second.reason == "CONTEXT_TOO_LONG"
    assert second.result is not None
    assert second.result.replayed
    assert world.state.totals.received == 1


@pytest.mark.parametrize("way", WAYS)
async def test_same_id_with_another_body_conflicts(world: World, way: str) -> None:
    running = await world.begin(way, prompt("[[stall]]", request_id="taken"))
    await world.until(lambda: world.running() == 1)
    for other in (
        prompt("x", request_id="taken"),
        prompt("[[stall]]", request_id="taken", priority=9),
    ):
        answer = await world.ask(way, other)
        assert (answer.reason, answer.field) == ("REQUEST_ID_CONFLICT", "request.request_id")
    await cancel_by_id(world, "taken")
    await running.wait()
    done = prompt("[[tokens=1]]", request_id="done")
    await world.ask(way, done)
    done.text.prompt = "other"
    assert (await world.ask(way, done)).reason == "REQUEST_ID_CONFLICT"
    await world.settled()


async def test_ids_of_different_tenants_are_different(world: World) -> None:
    one = await world.ask("generate", prompt("[[tokens=1]]", request_id="id", tenant="a"))
    two = await world.ask("generate", prompt("[[tokens=2]]", request_id="id", tenant="b"))
    assert whole(one) != whole(two)


@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_and_expired_calls_are_not_given_again(world: World, way: str) -> None:
    request = prompt("[[stall@1]][[tokens=4]]", request_id="shared")
    exchange = await world.begin(way, request)
    await world.until(lambda: world.running() == 1)
    await cancel_by_id(world)
    assert (await exchange.wait()).reason == "CANCELLED_BY_CLIENT"
    request.timeout.CopyFrom(seconds(0.1))
    assert (await world.ask(way, request)).reason == "DEADLINE_EXCEEDED"
    assert world.state.totals.received == 2
    await world.settled()


async def test_failure_that_may_pass_is_tried_again() -> None:
    async with running_world() as world:
        await world.add_agent(slots=1)
        failing = inference_pb2.FailoverPolicy(max_attempts=1)
        request = prompt("[[fail]]", request_id="flaky", failover=failing)
        for count in (1, 2):
            answer = await world.ask("generate", request)
            assert answer.error is not None
            assert answer.error.reason
            assert world.state.totals.received == count


async def test_call_that_comes_while_the_last_one_leaves_starts_anew(world: World) -> None:
    """A request whose cancel is under way is nobody's to join."""
    stream = await world.multiplex()
    first, call = stream.new(prompt("[[stall@1]]", request_id="shared"))
    await stream.send(calls=[call])
    await world.until(lambda: world.running() == 1)
    second, again = stream.new(prompt("[[stall@1]]", request_id="shared"))
    await stream.send(cancel_call_ids=[first.call_id])
    await stream.send(calls=[again])
    assert (await first.wait()).reason == "CANCELLED_BY_CLIENT"
    await world.until(lambda: world.state.totals.received == 2)
    await second.cancel()
    assert (await second.wait()).reason == "CANCELLED_BY_CLIENT"
    await world.settled()


# Leaving and coming back.


@pytest.mark.parametrize("way", WAYS)
async def test_others_go_on_when_one_caller_leaves(world: World, way: str) -> None:
    request = prompt("[[sleep=200ms]][[tokens=5]]", request_id="shared")
    await world.multiplex()
    leaver = await world.begin(way, request)
    await world.until(lambda: world.running() == 1)
    stayer = await world.begin("generate", request)
    await world.until(lambda: [len(e.callers) for e in world.book.entries.values()] == [2])
    await leaver.cancel()
    if way not in SINGLE:
        assert (await leaver.wait()).reason == "CANCELLED_BY_CLIENT"
    assert check_text(whole(await stayer.wait()))[0][1:] == (0, 4)
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("how", ["rpc", "stream"])
async def test_work_goes_on_for_its_grace_and_can_be_joined(
    world: World, way: str, how: str
) -> None:
    """The caller is gone; a call with the same id gets the rest, from where it says it is."""
    text = "[[tokens=12]][[sleep=300ms]]"
    request = prompt(text, request_id="shared")
    leaver = "generate_stream" if how == "rpc" else "multiplex_stream"
    first = await world.begin(leaver, request, detach_grace=GRACE)
    await first.until(lambda: first.answer.started)
    if how == "rpc":
        await first.cancel()
    else:
        await world.streams[-1].close()
    await world.until(lambda: [e.callers for e in world.book.entries.values()] == [()])
    assert len(world.state.requests) == 1, "it goes on"
    back = await world.ask(way, request, attach=point(first, 0))
    assert back.accepted[0].attached
    assert is_seamless(whole(back))
    assert not back.started[0].restarted
    assert world.state.totals.batches == 1
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
async def test_joining_with_offsets_gets_exactly_the_rest(world: World, way: str) -> None:
    first = await stream_five(world)
    whole_text = first.answer.text
    have = len(whole_text) - 9
    back = await world.begin(
        way, prompt("[[stall=5]]", request_id="shared"), attach=point(first, have)
    )
    await back.until(lambda: back.answer.rows)
    assert back.answer.rows == [(0, 0, have, whole_text[have:])]
    nothing = await world.begin(
        way, prompt("[[stall=5]]", request_id="shared"), attach=point(first, len(whole_text))
    )
    await nothing.until(lambda: nothing.answer.started)
    await cancel_by_id(world)
    assert (await nothing.wait()).rows == []
    for exchange in (first, back):
        assert (await exchange.wait()).reason == "CANCELLED_BY_CLIENT"
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
async def test_joining_another_output_gets_all_of_it_as_restarted(world: World, way: str) -> None:
    first = await stream_five(world)
    back = await world.begin(
        way, prompt("[[stall=5]]", request_id="shared"), attach=point(first, 3, output_id=77)
    )
    await back.until(lambda: back.answer.rows)
    assert back.answer.started[0].restarted
    assert back.answer.rows == [(0, 0, 0, first.answer.text)]
    await cancel_by_id(world)
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
async def test_output_of_a_scheduler_before_is_void_when_the_request_begins_anew(way: str) -> None:
    """Whether its caller is the first to come back or joins while the request still waits."""
    before = scheduler_service_pb2.AttachPoint(output_id=77, offsets=[{"offset": 3}])
    async with running_world(known_models=frozenset({"simulated"})) as world:
        request = prompt("[[tokens=3]]", request_id="shared")
        exchanges = [
            await world.begin(way, request, **fields)
            for fields in ({"attach": before}, {"attach": before}, {})
        ]
        for exchange in exchanges:
            await exchange.until(lambda exchange=exchange: exchange.answer.accepted)
        await world.add_agent()
        for exchange, restarted in zip(exchanges, (True, True, False), strict=True):
            answer = await exchange.wait()
            assert [started.restarted for started in answer.started] == [restarted]
            assert is_seamless(whole(answer))
        await world.settled()


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("fields", [{"offset": 10_000}, {"offset": 4, "channel": 1}])
async def test_joining_beyond_the_output_is_refused(
    world: World, way: str, fields: dict[str, int]
) -> None:
    """And the refused caller is no caller: the work ends when the real one leaves."""
    first = await stream_five(world)
    answer = await world.ask(
        way, prompt("[[stall=5]]", request_id="shared"), attach=point(first, **fields)
    )
    assert (answer.reason, answer.field) == ("INVALID_ARGUMENT", "attach.offsets[0].offset")
    endless = scheduler_service_pb2.AttachPoint(offsets=[types_pb2.StreamOffset()] * 65_537)
    answer = await world.ask(way, prompt(), attach=endless)
    assert (answer.reason, answer.field) == ("INVALID_ARGUMENT", "attach.offsets")
    await first.cancel()
    await world.settled()


async def test_token_ids_are_given_to_who_joins() -> None:
    """Ids travel beside the text, and alone where no text was asked for."""
    async with running_world() as world:
        entries = world.book.entries
        await world.add_agent(slots=2)
        for omit_text in (False, True):
            first = await stream_five(world)
            (entry,) = entries.values()
            start = 0 if omit_text else len(first.answer.text)
            text = "" if omit_text else "more"
            if omit_text:
                entry._delivered.clear()
            entry.deliver(0, 0, start, text, 2, [7, 8])
            request = prompt("[[stall=5]]", request_id="shared")
            back = await world.begin("multiplex_stream", request, attach=point(first, start))
            await back.until(lambda answer=back.answer: answer.rows)  # type: ignore[misc]
            assert back.answer.rows == [(0, 0, start, text)]
            assert back.answer.token_ids == [7, 8]
            await cancel_by_id(world)
            await world.settled()


async def test_grace_ends_and_the_work_with_it(world: World) -> None:
    exchange = await world.begin(
        "generate", prompt("[[stall]]", request_id="shared"), detach_grace=seconds(0.2)
    )
    await world.until(lambda: world.running() == 1)
    await exchange.cancel()
    await world.until(lambda: any(not e.callers for e in world.book.entries.values()), SOON_S)
    assert world.state.requests
    await world.settled(1.5)
    assert world.state.totals.outcomes[Outcome.CANCELLED] == 1


async def test_grace_is_for_calls_that_can_be_found_again(world: World) -> None:
    """Without an id of the client's own nobody could join: the work ends at once."""
    exchange = await world.begin("generate", prompt("[[stall]]"), detach_grace=GRACE)
    await world.until(lambda: world.running() == 1)
    await exchange.cancel()
    await world.settled()


async def test_cancel_ends_the_work_in_spite_of_its_grace(world: World) -> None:
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt("[[stall]]", request_id="a"), detach_grace=GRACE)
    await world.until(lambda: world.running() == 1)
    await exchange.cancel()
    assert (await exchange.wait()).reason == "CANCELLED_BY_CLIENT"
    await world.settled()


async def test_bad_grace_is_refused(world: World) -> None:
    for way in WAYS:
        answer = await world.ask(way, prompt(request_id="a"), detach_grace=seconds(-1))
        assert (answer.reason, answer.field) == ("INVALID_ARGUMENT", "detach_grace")


# Failing over in the middle.


@pytest.mark.parametrize("way", STREAMS)
async def test_output_goes_on_elsewhere_without_a_seam(world: World, way: str) -> None:
    """Feature "continue"."""
    exchange = await stream_five(world, way, "[[tokens=30]][[stall=5@1]]")
    await world.add_agent("n2")
    await world.agents[0].stop()
    answer = await exchange.wait()
    assert is_seamless(whole(answer))
    assert [run[1:] for run in check_text(answer.text)] == [(0, 4), (5, 29)]
    assert [started.restarted for started in answer.started] == [False, False]
    assert {started.output_id for started in answer.started} == {answer.started[0].output_id}
    assert answer.result is not None
    assert [attempt.node_id for attempt in answer.result.attempts] == ["n1", "n2"]
    del world.agents[0]
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
async def test_output_starts_again_where_that_was_allowed(world: World, way: str) -> None:
    """Feature "restart": with guided output, which cannot be continued."""
    request = prompt("[[tokens=30]][[stall=5@1]]", request_id="shared")
    request.params.regex = ".*"
    request.failover.resume_mode = inference_pb2.RESUME_MODE_RESTART
    exchange = await world.begin(way, request)
    await exchange.until(lambda: exchange.answer.text.count(" ") == 5)
    await world.add_agent("n2")
    await world.agents[0].stop()
    answer = await exchange.wait()
    assert [started.restarted for started in answer.started] == [False, True]
    restart = len(answer.order) - 1 - answer.order[::-1].index("started")
    rows = answer.rows[answer.order[:restart].count("delta") :]
    assert rows[0][2] == 0
    assert [run[1:] for run in check_text("".join(row[3] for row in rows))] == [(0, 29)]
    assert answer.started[0].output_id != answer.started[1].output_id
    del world.agents[0]
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_substitute_answers_where_that_was_allowed(way: str) -> None:
    """Feature "degrade"."""
    async with running_world(known_models=frozenset({"large"})) as world:
        await world.add_agent()
        policy = inference_pb2.DegradePolicy(models=["simulated"])
        answer = await world.ask(way, prompt("[[tokens=3]]", model="large", degrade=policy))
        whole(answer)
        assert answer.result is not None
        assert (answer.result.model, answer.result.degraded) == ("simulated", True)
        assert answer.result.degrade_reason == "no_capacity"
        assert all(started.degraded for started in answer.started)
        await world.settled()
