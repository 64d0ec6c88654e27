"""May this tenant have one more request? Checked and reserved in one go, before the core hears.

A reservation rides on the request's entry and is given back once, at its end. What is refused, here
or by the core, costs nothing: no count was changed, or all of it is taken back. Tokens are reserved
by estimate and settled at the end. An observer of the driver keeps apart what waits and what runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from scheduler_service.config_security import TenantSection, TenantsSection
from scheduler_service.core import records
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import SECOND, Instant, Request
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.windows import MinuteWindow
from service_kit.metrics import Family, Kind

URGENT: Final = 8  # and above
IDLE_TENANTS_MAX: Final = 10_000
_SOON: Final = SECOND // 4


class Account:
    """What one tenant uses. Windows exist only where there is a limit to hold them to."""

    __slots__ = (
        "in_flight", "limits", "max_in_flight", "max_queued", "max_requests", "max_tokens",
        "queued", "requests", "tenant", "tokens", "urgent", "windows",
    )  # fmt: skip

    def __init__(self, tenant: str, limits: TenantSection) -> None:
        self.tenant = tenant
        self.limits = limits
        self.in_flight = 0
        self.queued = 0
        self.max_in_flight = _most(limits.in_flight)
        self.max_queued = _most(limits.queued)
        self.max_requests = _most(limits.requests_per_minute)
        self.max_tokens = _most(limits.tokens_per_minute)
        share = limits.urgent_share is not None
        counts = share or limits.requests_per_minute is not None
        self.requests = MinuteWindow() if counts else None
        self.tokens = MinuteWindow() if limits.tokens_per_minute is not None else None
        self.urgent = MinuteWindow() if share else None
        self.windows = counts or self.tokens is not None

    def take(self, tokens: int, urgent: bool, now_s: int) -> None:
        """One more request in the last minute, if it fits.

        Raises:
            Refused: QUOTA_EXCEEDED; nothing was taken.
        """
        requests, counts = self.requests, self.tokens
        if requests is not None and not requests.take(1, self.max_requests, now_s):
            raise self._full(requests, 1, "requests_per_minute", self.max_requests)
        if counts is not None and not counts.take(tokens, self.max_tokens, now_s):
            if requests is not None:
                requests.take_back(1, now_s, now_s)
            raise self._full(counts, tokens, "tokens_per_minute", self.max_tokens)
        if urgent and self.urgent is not None and requests is not None:
            share = self.limits.urgent_share or 1.0
            if not self.urgent.take(1, max(1.0, share * requests.total), now_s):
                requests.take_back(1, now_s, now_s)
                if counts is not None:
                    counts.take_back(tokens, now_s, now_s)
                raise _over(self, "urgent_share", share, _SOON)

    def _full(self, window: MinuteWindow, more: int, name: str, limit: float) -> Refused:
        return _over(self, name, limit, window.seconds_until(more, limit) * SECOND)

    def forget(self, held: Reservation, now_s: int) -> None:
        """One less, as if it had not come."""
        if self.requests is not None:
            self.requests.take_back(1, held.at_s, now_s)
        if self.tokens is not None:
            self.tokens.take_back(held.tokens, held.at_s, now_s)
        if held.urgent and self.urgent is not None:
            self.urgent.take_back(1, held.at_s, now_s)

    def is_idle(self, now_s: int) -> bool:
        """Whether it would be the same if it were new."""
        for window in (self.requests, self.tokens, self.urgent):
            if window is not None:
                window.advance(now_s)
                if window.total:
                    return False
        return self.in_flight == 0


class Reservation:
    """What one request holds of its tenant's account."""

    __slots__ = ("account", "at_s", "tokens", "urgent", "waits")

    def __init__(self, account: Account, at_s: int, tokens: int, urgent: bool) -> None:
        self.account = account
        self.at_s = at_s
        self.tokens = tokens
        self.urgent = urgent
        self.waits = True


class Quotas:
    """The accounts of all tenants. On the path of every request where any tenant has limits; one
    of a tenant without limits costs a look-up.
    """

    def __init__(self, settings: TenantsSection) -> None:
        self._default = _limits(settings.default)
        self._named = {name: _limits(limits) for name, limits in settings.named.items()}
        self._accounts: dict[str, Account] = {}
        self.refused: Counter[str] = Counter()  # requests, by name of the limit
        self.are_any = any(limits is not None for limits in (self._default, *self._named.values()))

    def reserve(self, request: Request, now: Instant) -> Reservation | None:
        """Take what the request needs of its tenant's limits; None: the tenant has none.

        Raises:
            Refused: QUOTA_EXCEEDED; nothing was taken.
        """
        account = self._accounts.get(request.tenant)
        if account is None:
            limits = self._named.get(request.tenant, self._default)
            if limits is None:
                return None
            account = self._new_account(request.tenant, limits, now)
        now_s = tokens = 0
        urgent = False
        try:
            if account.in_flight >= account.max_in_flight:
                raise _over(account, "in_flight", account.max_in_flight, _SOON)
            if account.queued >= account.max_queued:
                raise _over(account, "queued", account.max_queued, _SOON)
            if account.windows:
                now_s, tokens = now // SECOND, request.tokens
                urgent = request.priority >= URGENT
                account.take(tokens, urgent, now_s)
        except Refused as refused:
            self.refused[refused.error.metadata["quota"]] += 1
            raise
        account.in_flight += 1
        account.queued += 1
        return Reservation(account, now_s, tokens, urgent)

    def take_back(self, held: Reservation, now: Instant) -> None:
        """The request was never queued: as if it had not come."""
        _leave(held)
        held.account.forget(held, now // SECOND)

    def release(self, held: Reservation, command: FinishRequest, now: Instant) -> None:
        """The request has ended; once per reservation."""
        if command.outcome is Outcome.REJECTED:
            self.take_back(held, now)
            return
        account = held.account
        account.in_flight -= 1
        if held.waits:
            held.waits = False
            account.queued -= 1
        if account.tokens is not None:
            used = _used(command, held.tokens)
            if used < held.tokens:
                account.tokens.take_back(held.tokens - used, held.at_s, now // SECOND)
            elif used > held.tokens:
                account.tokens.add(used - held.tokens, now // SECOND)

    def observe(self, happened: Sequence[Record]) -> None:
        """Of the driver: what was sent to a node no longer waits, what came back does again."""
        for record in happened:
            kind = record.kind
            if kind == records.DISPATCH_BATCH and record.batch is not None:
                for attempt in record.batch.attempts:
                    entry: Any = attempt.request.context
                    if entry is not None:
                        held = entry.reservation
                        if held is not None and held.waits:
                            held.waits = False
                            held.account.queued -= 1
            elif kind == records.ATTEMPT_ENDED and record.attempt is not None:
                request = record.attempt.request
                entry = request.context  # None once it has ended
                if entry is not None and not request.live:
                    held = entry.reservation
                    if held is not None and not held.waits:
                        held.waits = True
                        held.account.queued += 1

    def usage(self, tenant: str) -> tuple[int, int]:
        """In flight and queued, of one tenant."""
        account = self._accounts.get(tenant)
        return (0, 0) if account is None else (account.in_flight, account.queued)

    def family(self) -> Family:
        """The metric."""
        found = Family(
            "batchyard.quota.refusals",
            Kind.COUNTER,
            "Requests over a limit of their tenant",
            "{request}",
            ("limit",),
        )
        for limit, number in self.refused.items():
            found.add(number, limit)
        return found

    def _new_account(self, tenant: str, limits: TenantSection, now: Instant) -> Account:
        if len(self._accounts) >= IDLE_TENANTS_MAX:
            self._forget_idle(now // SECOND)
        account = self._accounts[tenant] = Account(tenant, limits)
        return account

    def _forget_idle(self, now_s: int) -> None:
        """Tenants are named by callers, so there may be any number of them. If all are busy, the
        oldest begin anew.
        """
        idle = [name for name, each in self._accounts.items() if each.is_idle(now_s)]
        for name in idle or list(self._accounts)[: IDLE_TENANTS_MAX // 10]:
            del self._accounts[name]


def _limits(given: TenantSection) -> TenantSection | None:
    """None: there are none."""
    return None if given == TenantSection() else given


def _most(limit: int | None) -> float:
    return math.inf if limit is None else limit


def _leave(held: Reservation) -> None:
    held.account.in_flight -= 1
    if held.waits:
        held.waits = False
        held.account.queued -= 1


def _used(command: FinishRequest, estimate: int) -> int:
    """Tokens that the request has cost."""
    request, payload = command.request, command.payload
    if payload is not None and payload.HasField("usage"):
        usage = payload.usage
        return int(usage.input_tokens + usage.output_tokens)
    if not request.attempts:
        return 0  # what never ran used nothing
    return estimate


def _over(account: Account, name: str, limit: float, retry_after: int) -> Refused:
    text = {
        "urgent_share": f"more than {limit:.0%} of the tenant's requests of the last minute would "
        f"have priority {URGENT} and above; lower the priority, or wait",
        "in_flight": f"the tenant has {limit} requests in flight, its limit",
        "queued": f"the tenant has {limit} requests waiting, its limit",
    }.get(name, f"the tenant's limit of {limit} {name.replace('_', ' ')} is reached")
    return Refused(
        text,
        reason=Reason.QUOTA_EXCEEDED,
        metadata={"quota": name, "limit": str(limit), "tenant": account.tenant},
        retry_after=retry_after,
    )
