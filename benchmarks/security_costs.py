"""What do the checks of one request cost by themselves? No gRPC, in microseconds."""

from __future__ import annotations

import time
import timeit
from types import SimpleNamespace
from typing import Final

from scheduler_service.config_security import TenantSection, TenantsSection
from scheduler_service.core import records
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import Request
from scheduler_service.security.permits import permit
from scheduler_service.security.principals import Principal, Right
from scheduler_service.security.quotas import Quotas

TIMES: Final = 5_000
BATCH: Final = 8  # requests that go to a node together, as under load

_ALL: Final = TenantSection(
    in_flight=10_000, queued=10_000, requests_per_minute=10**9, tokens_per_minute=10**12,
    urgent_share=1.0,
)  # fmt: skip


def check_us() -> float:
    """Of tenant, model and priority, for a principal that is bound in all three."""
    principal = Principal(
        "p", Right.USE, tenants=("a", "b"), models=frozenset({"m"}), max_priority=9
    )
    asked = Request(1, "r", "m", 6)

    def unchecked() -> None:
        asked.tenant = ""

    def checked() -> None:
        asked.tenant = ""
        permit(principal, asked, ())

    return _best_us(checked) - _best_us(unchecked)


def limits_us() -> float:
    """Of all five limits of a tenant: reserved, seen dispatched, given back."""
    quotas = Quotas(TenantsSection(default=_ALL))
    asked = Request(1, "r", "m", 6, output_tokens=10, tenant="a")
    ended = FinishRequest(asked, Outcome.SUCCEEDED)
    now = time.monotonic_ns()
    batch = SimpleNamespace(attempts=[SimpleNamespace(request=asked)] * BATCH)
    sent = [Record(records.DISPATCH_BATCH, 0, batch=batch)]  # type: ignore[arg-type]

    def reserved() -> None:
        held = quotas.reserve(asked, now)
        assert held is not None
        asked.context = SimpleNamespace(reservation=held)
        quotas.release(held, ended, now)

    def free() -> None:
        asked.context = SimpleNamespace(reservation=None)

    cost = _best_us(reserved) - _best_us(free)
    return cost + _best_us(lambda: quotas.observe(sent)) / BATCH


def _best_us(code: object) -> float:
    return min(timeit.repeat(code, number=TIMES, repeat=3)) / TIMES * 1e6  # type: ignore[arg-type]
