"""Limits of tenants: reserved in one go, given back once, and refused work costs nothing."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from batchyard.v1 import types_pb2
from scheduler_service.config_security import TenantSection, TenantsSection
from scheduler_service.core import records
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import SECOND, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.quotas import Quotas, Reservation
from scheduler_service.security.windows import MinuteWindow

NOW = 1_000 * SECOND


def quotas(**limits: Any) -> Quotas:
    return Quotas(TenantsSection(default=TenantSection(**limits)))


def request(tenant: str = "a", **fields: Any) -> Request:
    return Request(1, "r", "m", tenant=tenant, **fields)


def refusal(held: Quotas, asked: Request, now: int = NOW) -> types_pb2.Error:
    with pytest.raises(Refused) as caught:
        held.reserve(asked, now)
    assert caught.value.error.reason == types_pb2.ERROR_REASON_QUOTA_EXCEEDED
    assert caught.value.error.HasField("retry_after")
    assert caught.value.error.retryable
    return caught.value.error


def end(
    held: Quotas,
    reservation: Reservation,
    asked: Request,
    outcome: Outcome = Outcome.SUCCEEDED,
    now: int = NOW,
    payload: Any = None,
) -> None:
    held.release(reservation, FinishRequest(asked, outcome, payload=payload), now)


def test_refused_work_costs_nothing() -> None:
    """Behaviour 31: rate 2 a minute, one at once; the one that was refused was no second."""
    held = quotas(in_flight=1, requests_per_minute=2)
    first = request()
    reservation = held.reserve(first, NOW)
    assert refusal(held, request()).metadata["quota"] == "in_flight"
    end(held, reservation, first)
    held.reserve(request(), NOW)


def test_what_the_core_rejects_costs_nothing() -> None:
    held = quotas(requests_per_minute=1, tokens_per_minute=10, urgent_share=0.5)
    for _ in range(5):
        asked = request(output_tokens=10, priority=9)
        end(held, held.reserve(asked, NOW), asked, Outcome.REJECTED)


def test_requests_per_minute_say_when_to_come_back() -> None:
    held = quotas(requests_per_minute=2)
    held.reserve(request(), NOW)
    held.reserve(request(), NOW + 10 * SECOND)
    error = refusal(held, request(), NOW + 30 * SECOND)
    assert error.metadata["tenant"] == "a"
    assert 30 <= error.retry_after.seconds <= 31
    refusal(held, request(), NOW + 59 * SECOND)
    held.reserve(request(), NOW + (30 + error.retry_after.seconds) * SECOND)


def test_tokens_are_settled_at_the_end() -> None:
    held = quotas(tokens_per_minute=100)
    asked = request(output_tokens=90)
    reservation = held.reserve(asked, NOW)
    refusal(held, request(output_tokens=90))
    usage = SimpleNamespace(input_tokens=2, output_tokens=3)
    asked.attempts = (SimpleNamespace(),)  # type: ignore[assignment]
    payload = SimpleNamespace(usage=usage, HasField=lambda name: name == "usage")
    end(held, reservation, asked, payload=payload)
    held.reserve(request(output_tokens=90), NOW)
    refusal(held, request(output_tokens=10))


def test_what_never_ran_gives_its_tokens_back() -> None:
    held = quotas(tokens_per_minute=100)
    asked = request(output_tokens=100)
    end(held, held.reserve(asked, NOW), asked, Outcome.CANCELLED)
    held.reserve(request(output_tokens=100), NOW)


def test_more_tokens_than_a_minute_holds_are_refused_for_a_minute() -> None:
    error = refusal(quotas(tokens_per_minute=10), request(output_tokens=11))
    assert error.retry_after.seconds >= 60


def test_urgent_requests_have_their_share_and_at_least_one() -> None:
    held = quotas(urgent_share=0.25)
    held.reserve(request(priority=8), NOW)
    assert refusal(held, request(priority=8)).metadata["quota"] == "urgent_share"
    for _ in range(6):
        held.reserve(request(priority=7), NOW)
    held.reserve(request(priority=10), NOW)
    refusal(held, request(priority=10))


def test_a_tenant_without_limits_reserves_nothing() -> None:
    """So it costs nothing either, where others have limits."""
    held = Quotas(TenantsSection(named={"a": TenantSection(in_flight=1), "free": TenantSection()}))
    assert held.are_any
    for tenant in ("b", "free", ""):
        assert [held.reserve(request(tenant), NOW) for _ in range(3)] == [None] * 3
    assert held.reserve(request("a"), NOW) is not None
    refusal(held, request("a"))
    assert not Quotas(TenantsSection(named={"free": TenantSection()})).are_any


def test_tenants_do_not_share_limits() -> None:
    held = Quotas(
        TenantsSection(
            default=TenantSection(in_flight=1), named={"big": TenantSection(in_flight=2)}
        )
    )
    held.reserve(request("a"), NOW)
    held.reserve(request("b"), NOW)
    held.reserve(request("big"), NOW)
    held.reserve(request("big"), NOW)
    for tenant in ("a", "b", "big"):
        refusal(held, request(tenant))


def test_dispatched_requests_are_not_queued_and_come_back_when_they_return() -> None:
    held = quotas(queued=1)
    asked = request()
    reservation = held.reserve(asked, NOW)
    asked.context = SimpleNamespace(reservation=reservation)
    refusal(held, request())
    attempt: Any = SimpleNamespace(request=asked)
    batch: Any = SimpleNamespace(attempts=[attempt])
    held.observe([Record(records.DISPATCH_BATCH, NOW, batch=batch)])
    assert held.usage("a") == (1, 0)
    held.observe([Record(records.ATTEMPT_ENDED, NOW, attempt=attempt)])
    assert held.usage("a") == (1, 1)
    refusal(held, request())
    end(held, reservation, asked)
    assert held.usage("a") == (0, 0)


def test_counts_never_drift() -> None:
    """Behaviour 33: any order of reservations, dispatches, returns and ends leaves nothing."""
    draw = random.Random(7)
    held = quotas(in_flight=10, queued=8)
    open_: list[tuple[Request, Reservation]] = []
    for step in range(3_000):
        now = NOW + step * SECOND // 50
        if draw.random() < 0.6:
            asked = request()
            try:
                reservation = held.reserve(asked, now)
            except Refused:
                pass
            else:
                asked.context = SimpleNamespace(reservation=reservation)
                open_.append((asked, reservation))
        elif open_:
            asked, reservation = open_[draw.randrange(len(open_))]
            attempt: Any = SimpleNamespace(request=asked)
            if draw.random() < 0.5:
                batch: Any = SimpleNamespace(attempts=[attempt])
                held.observe([Record(records.DISPATCH_BATCH, now, batch=batch)])
            elif draw.random() < 0.5:
                held.observe([Record(records.ATTEMPT_ENDED, now, attempt=attempt)])
            else:
                open_.remove((asked, reservation))
                asked.context = None
                end(held, reservation, asked, draw.choice(list(Outcome)), now)
        in_flight, queued = held.usage("a")
        assert in_flight == len(open_) <= 10
        assert queued == sum(each.waits for _, each in open_)
    for asked, reservation in open_:
        end(held, reservation, asked)
    assert held.usage("a") == (0, 0)


def test_any_number_of_tenants_fits() -> None:
    held = quotas(in_flight=1)
    for n in range(10_500):
        asked = request(f"t{n}")
        end(held, held.reserve(asked, NOW), asked, Outcome.REJECTED)
    assert len(held._accounts) <= 10_001


def test_a_window_is_never_below_the_truth() -> None:
    """Against a list of everything: at least what the last 60 s had, at most what 61 s had."""
    draw = random.Random(3)
    window, log, now = MinuteWindow(), [], 500
    for _ in range(4_000):
        now += draw.choice((0, 0, 0, 1, 1, 2, 70 if draw.random() < 0.01 else 1))
        amount = draw.randrange(5)
        window.add(amount, now)
        log.append((now, amount))
        if draw.random() < 0.2:
            at, some = draw.choice(log)
            if some:
                log[log.index((at, some))] = (at, 0)
                window.take_back(some, at, now)
        assert window.total == sum(n for at, n in log if now - at <= 60)


def test_the_status_names_the_quota() -> None:
    error = status.error(
        Reason.QUOTA_EXCEEDED, "too much", metadata={"tenant": "a"}, retry_after=SECOND
    )
    details = {detail.type_url.rpartition(".")[2] for detail in status.rich_status(error).details}
    assert {"ErrorInfo", "RetryInfo", "QuotaFailure"} <= details
