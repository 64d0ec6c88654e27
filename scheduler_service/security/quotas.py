"""May this tenant have one more request? Checked and reserved in one go, before the core hears.

A reservation rides on the request's entry and is given back once, at its end. What is refused, here
or by the core, costs nothing: no count was changed, or all of it is taken back. Tokens are reserved
by estimate and settled at the end. An observer of the driver keeps apart what waits and what runs.
"""

from __future__ import annotations

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

URGENT: Final = 8  # and above
IDLE_TENANTS_MAX: Final = 10_000
_SOON: Final = SECOND // 4


class Account:
    """What one tenant uses."""

    __slots__ = ("in_flight", "limits", "queued", "requests", "tenant", "tokens", "urgent")

    def __init__(self, tenant: str, limits: TenantSection) -> None:
        self.tenant = tenant
        self.limits = limits
        self.in_flight = 0
        self.queued = 0
        self.requests = MinuteWindow()
        self.tokens = MinuteWindow()
        self.urgent = MinuteWindow()


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
    """The accounts of all tenants."""

    def __init__(self, settings: TenantsSection) -> None:
        self._default = settings.default
        self._named = settings.named
        self._accounts: dict[str, Account] = {}
        unlimited = TenantSection()
        self.are_any = settings.default != unlimited or any(
            limits != unlimited for limits in settings.named.values()
        )

    def reserve(self, request: Request, now: Instant) -> Reservation:
        """Take what the request needs of its tenant's limits.

        Raises:
            Refused: QUOTA_EXCEEDED; nothing was taken.
        """
        account = self._account(request.tenant)
        limits, now_s = account.limits, now // SECOND
        urgent = request.priority >= URGENT
        tokens = request.tokens
        if limits.in_flight is not None and account.in_flight >= limits.in_flight:
            raise _over(account, "in_flight", limits.in_flight, _SOON)
        if limits.queued is not None and account.queued >= limits.queued:
            raise _over(account, "queued", limits.queued, _SOON)
        if limits.requests_per_minute is not None:
            _check(account, account.requests, 1, "requests_per_minute", now_s)
        if limits.tokens_per_minute is not None:
            _check(account, account.tokens, tokens, "tokens_per_minute", now_s)
        if urgent and limits.urgent_share is not None:
            _check_share(account, limits.urgent_share, now_s)
        account.in_flight += 1
        account.queued += 1
        account.requests.add(1, now_s)
        account.tokens.add(tokens, now_s)
        if urgent:
            account.urgent.add(1, now_s)
        return Reservation(account, now_s, tokens, urgent)

    def take_back(self, held: Reservation, now: Instant) -> None:
        """The request was never queued: as if it had not come."""
        _leave(held)
        account, now_s = held.account, now // SECOND
        account.requests.take_back(1, held.at_s, now_s)
        account.tokens.take_back(held.tokens, held.at_s, now_s)
        if held.urgent:
            account.urgent.take_back(1, held.at_s, now_s)

    def release(self, held: Reservation, command: FinishRequest, now: Instant) -> None:
        """The request has ended; once per reservation."""
        if command.outcome is Outcome.REJECTED:
            self.take_back(held, now)
            return
        _leave(held)
        account, now_s = held.account, now // SECOND
        used = _used(command, held.tokens)
        if used < held.tokens:
            account.tokens.take_back(held.tokens - used, held.at_s, now_s)
        elif used > held.tokens:
            account.tokens.add(used - held.tokens, now_s)

    def observe(self, happened: Sequence[Record]) -> None:
        """Of the driver: what was sent to a node no longer waits, what came back does again."""
        for record in happened:
            if record.kind == records.DISPATCH_BATCH and record.batch is not None:
                for attempt in record.batch.attempts:
                    _set_waiting(attempt.request, False)
            elif record.kind == records.ATTEMPT_ENDED and record.attempt is not None:
                request = record.attempt.request
                if not request.live and request.finished_at == 0:
                    _set_waiting(request, True)

    def usage(self, tenant: str) -> tuple[int, int]:
        """In flight and queued, of one tenant."""
        account = self._accounts.get(tenant)
        return (0, 0) if account is None else (account.in_flight, account.queued)

    def _account(self, tenant: str) -> Account:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= IDLE_TENANTS_MAX:
                self._forget_idle()
            limits = self._named.get(tenant, self._default)
            account = self._accounts[tenant] = Account(tenant, limits)
        return account

    def _forget_idle(self) -> None:
        """Tenants are named by callers, so there may be any number of them."""
        idle = [
            name
            for name, each in self._accounts.items()
            if not each.in_flight and not each.requests.total
        ]
        for name in idle or list(self._accounts)[:1]:
            del self._accounts[name]


def _leave(held: Reservation) -> None:
    held.account.in_flight -= 1
    if held.waits:
        held.waits = False
        held.account.queued -= 1


def _set_waiting(request: Request, waits: bool) -> None:
    entry: Any = request.context
    held: Reservation | None = None if entry is None else entry.reservation
    if held is not None and held.waits is not waits:
        held.waits = waits
        held.account.queued += 1 if waits else -1


def _used(command: FinishRequest, estimate: int) -> int:
    """Tokens that the request has cost."""
    request, payload = command.request, command.payload
    if payload is not None and payload.HasField("usage"):
        usage = payload.usage
        return int(usage.input_tokens + usage.output_tokens)
    if not request.attempts:
        return 0  # what never ran used nothing
    return estimate


def _check(account: Account, window: MinuteWindow, more: int, name: str, now_s: int) -> None:
    window.advance(now_s)
    limit: int = getattr(account.limits, name)
    if window.total + more > limit:
        raise _over(account, name, limit, window.seconds_until(more, limit) * SECOND)


def _check_share(account: Account, share: float, now_s: int) -> None:
    account.urgent.advance(now_s)
    account.requests.advance(now_s)
    urgent = account.urgent.total + 1
    if urgent > max(1.0, share * (account.requests.total + 1)):
        raise _over(account, "urgent_share", share, _SOON)


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
