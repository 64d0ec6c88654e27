"""Retries keep the id and the deadline; deadlines hold even against a silent server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard import AsyncClient, Retry, errors
from batchyard.v1 import Error, ErrorReason
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    answer,
    refusal,
)

FULL = Error(
    code=8,
    reason=ErrorReason.ERROR_REASON_QUEUE_FULL,
    message="full",
    retryable=True,
    retry_after=Duration(nanos=1_000_000),
)


def hold(stream: ScriptedStream, call: Any) -> None:
    """Answers nothing."""


def full_for(times: int) -> Any:
    """Refuses the first `times` calls as QUEUE_FULL."""

    def script(stream: ScriptedStream, call: Any) -> None:
        if len(stream.calls) <= times:
            stream.result(call, refusal(call.request, FULL))
        else:
            stream.result(call, answer(call.request))

    return script


async def test_refusal_with_retry_after_is_sent_again(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = full_for(2)
    heard: list[Retry] = []
    async with AsyncClient(scheduler.address, on_retry=heard.append) as client:
        assert (await client.generate("p", timeout="30s")).text == "p"
    first, second, third = scheduler.calls
    assert first.request.request_id == second.request.request_id == third.request.request_id
    assert third.request.timeout.ToSeconds() < 30
    assert [retry.attempt for retry in heard] == [1, 2]
    assert heard[0].request_id == first.request.request_id
    assert isinstance(heard[0].error, errors.Overloaded)
    assert heard[0].delay_s >= 0.001


async def test_streams_are_retried_too(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = full_for(1)
    async with AsyncClient(scheduler.address) as client:
        assert (await client.stream("p").wait()).text == "p"
    assert len(scheduler.calls) == 2


@pytest.mark.parametrize("retries", [0, 2])
async def test_number_of_retries_is_a_limit(scheduler: ScriptedScheduler, retries: int) -> None:
    scheduler.on_call = full_for(99)
    async with AsyncClient(scheduler.address, retries=retries) as client:
        with pytest.raises(errors.Overloaded) as caught:
            await client.generate("p")
    assert caught.value.retry_after == 0.001
    assert len(scheduler.calls) == retries + 1


async def test_budget_bounds_the_retries_of_all_calls(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = full_for(10_000)
    async with AsyncClient(scheduler.address) as client:
        outcomes = await asyncio.gather(
            *(client.generate(f"p{i}") for i in range(100)), return_exceptions=True
        )
    assert all(isinstance(outcome, errors.Overloaded) for outcome in outcomes)
    assert len(scheduler.calls) <= 100 + 10 + 10  # a tenth of them, and the floor


async def test_retry_that_would_miss_the_deadline_is_not_made(
    scheduler: ScriptedScheduler,
) -> None:
    late = Error()
    late.CopyFrom(FULL)
    late.retry_after.seconds = 60
    scheduler.on_call = lambda stream, call: stream.result(call, refusal(call.request, late))
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.Overloaded):
            await client.generate("p", timeout="5s")
    assert len(scheduler.calls) == 1


async def test_aborted_is_never_sent_again(scheduler: ScriptedScheduler) -> None:
    """Behaviour 66: the scheduler has retried already."""
    lost = Error(code=10, reason=ErrorReason.ERROR_REASON_NODE_LOST, message="m", retryable=True)
    scheduler.on_call = lambda stream, call: stream.result(
        call, refusal(call.request, lost, finish_reason=8)
    )
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.AttemptsExhausted):
            await client.generate("p")
    assert len(scheduler.calls) == 1


@pytest.mark.parametrize("transport", ["multiplex", "unary"])
async def test_silent_server_does_not_hold_a_call_past_its_deadline(
    scheduler: ScriptedScheduler, transport: Any
) -> None:
    """Behaviour 18, from the client's side: expiry is by timer."""

    async def never(request: Any, context: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    scheduler.on_call = hold
    scheduler.on_generate = never
    loop = asyncio.get_running_loop()
    async with AsyncClient(scheduler.address, transport=transport, deadline_grace="50ms") as client:
        await client.server_info()
        for make in (
            lambda: client.generate("p", timeout="100ms"),
            lambda: client.stream("p", timeout="100ms").wait(),
        ):
            began = loop.time()
            with pytest.raises(errors.DeadlineExceeded) as caught:
                await make()
            assert 0.14 <= loop.time() - began < 2
            assert caught.value.request_id
    if transport == "multiplex":
        assert len(scheduler.streams[0].cancelled) == 2


async def test_servers_own_expiry_comes_first(scheduler: ScriptedScheduler) -> None:
    expired = Error(
        code=4, reason=ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, message="by the server"
    )
    scheduler.on_call = lambda stream, call: stream.result(
        call, refusal(call.request, expired, finish_reason=7)
    )
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.DeadlineExceeded, match="by the server"):
            await client.generate("p", timeout="10s")


async def test_many_deadlines_cost_one_timer(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address, deadline_grace="10ms") as client:
        await client.server_info()
        outcomes = await asyncio.gather(
            *(client.generate("p", timeout=0.05 + i / 1000) for i in range(100)),
            return_exceptions=True,
        )
    assert all(isinstance(outcome, errors.DeadlineExceeded) for outcome in outcomes)
    assert len(scheduler.streams[0].cancelled) == 100
