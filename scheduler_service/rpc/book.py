"""Which requests are open, and which answers can be given again? By idempotency key.

A key is (principal, tenant, request id). In flight: a second call attaches. Finished: the answer is
replayed for a while. Another body under the same id conflicts. A cancelled or expired call, or an
error that a later try may cure, is never replayed. A restart forgets the keys of interactive calls.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.events import BodyReturned
from scheduler_service.core.outcomes import Outcome, Reason, RequestState
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.driver import Driver
from scheduler_service.rpc import status
from scheduler_service.rpc.convert import Parsed, fingerprint
from scheduler_service.rpc.entries import Caller, Entry, Key
from scheduler_service.rpc.results import ResultBuilder, failed
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.quotas import Quotas
from service_kit.metrics import Family, Kind

Finish = Callable[[FinishRequest, ResultBuilder], None]
_SUCCEEDED: Final = Outcome.SUCCEEDED
_RUNS: Final = frozenset({RequestState.DISPATCHED, RequestState.RUNNING})
_PER_REPLAY: Final = 400  # bytes beside result and body: key, entries of tables
_KEPT_BODY: Final = 512  # bytes; of a longer one only the hash is kept

# When it ended; the body, or nothing and its hash; the result.
_Replay = tuple[Instant, bytes, bytes, bytes]


class Book:
    """All open entries, and the finished ones that can be replayed, by idempotency key."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        *,
        replay_for: Duration = 600 * 1_000_000_000,
        replay_bytes: int = 64 << 20,
        quotas: Quotas | None = None,
        on_poisoned: Callable[[Request, bytes], None] | None = None,
    ) -> None:
        self._driver = driver
        self._quotas = quotas
        self._on_poisoned = on_poisoned  # is given the request and its bytes
        self._clock = clock
        self._replays: OrderedDict[Key, _Replay] = OrderedDict()
        self._replay_bytes = 0
        self._oldest_until: Instant = 0  # when the oldest is forgotten, or before
        self._replay_for = replay_for
        self._replay_limit = replay_bytes
        self.entries: dict[int, Entry] = {}  # by rid, until they end
        self.on_other: Finish | None = None  # told of the ends of requests that are not in here
        self.stalls = 0  # calls that were cut off, for their reader was too slow
        self.idle = asyncio.Event()  # no entry is open
        self.idle.set()
        # By request id, which few have the same at once.
        self._by_id: dict[str, Entry | tuple[Entry, ...]] = {}

    def find(self, key: Key, body: bytes) -> Entry | bytes | None:
        """The entry in flight, a finished result to replay, or None. `body`: the request's bytes.

        Raises:
            Refused: REQUEST_ID_CONFLICT, the same id came with another body.
        """
        entry = self.in_flight(key)
        if entry is not None:
            _check_same(entry.request_bytes, entry.body_hash, body, key)
            return entry
        replay = self._replays.get(key)
        if replay is None:
            return None
        finished_at, known, known_hash, result = replay
        if self._clock.now() - finished_at > self._replay_for:
            self._forget(key)
            return None
        _check_same(known, known_hash, body, key)
        return result

    def open(self, entry: Entry, key: Key | None, *, alone: bool = False) -> None:
        """Enter it and hand it to the core. `alone`: it came as an RPC of its own."""
        self._enter(entry, key)
        self._driver.submit(entry.request, alone=alone)

    def keep(self, entry: Entry, key: Key, loop: asyncio.AbstractEventLoop, grace_s: float) -> None:
        """Enter work of a scheduler before: its caller has so long to come back to it."""
        self._enter(entry, key)
        entry.detach_timer = loop.call_later(grace_s, self._abandon, entry)

    def complete(self, entry: Entry, parsed: Parsed) -> None:
        """The first caller of such work is here, with its body."""
        entry.request_bytes = parsed.data
        if parsed.labels:
            entry.labels = dict(parsed.labels)
        self._driver.post(BodyReturned(entry.request.rid, parsed.request))

    def in_flight(self, key: Key) -> Entry | None:
        """The open entry of that key that a call may join."""
        found = self._by_id.get(key[2])
        if found is not None:
            for entry in _all(found):
                if entry.key == key and not entry.closed:
                    return entry
        return None

    def _enter(self, entry: Entry, key: Key | None) -> None:
        request = entry.request
        request.context = entry
        if not self.entries:
            self.idle.clear()
        self.entries[request.rid] = entry
        known = self._by_id.setdefault(request.request_id, entry)
        if known is not entry:
            self._by_id[request.request_id] = (*_all(known), entry)
        entry.key = key

    def leave(self, entry: Entry, caller: Caller) -> None:
        """The caller went away; the last one takes the request with it, after its grace."""
        if caller not in entry.callers:
            return
        entry.leave(caller)
        if entry.callers or entry.detach_timer is not None:
            return
        if entry.detach:
            loop = asyncio.get_running_loop()
            entry.detach_timer = loop.call_later(entry.detach / 1e9, self._abandon, entry)
        else:
            self.cancel(entry, Reason.CANCELLED_BY_CLIENT)

    def give_up(self, entry: Entry, caller: Caller, reason: Reason, message: str) -> None:
        """The caller is to get an end with this reason: alone, it ends the request with it; where
        others wait for the same request, only it leaves.
        """
        if reason is Reason.CLIENT_TOO_SLOW:
            self.stalls += 1
        if len(entry.callers) > 1:
            entry.leave(caller)
            error = status.error(reason, message)
            caller.finish(failed(error, entry.request.request_id), error)
        else:
            self.cancel(entry, reason, message)

    def cancel(self, entry: Entry, reason: Reason, message: str = "") -> None:
        """End it for all its callers. From now on its id stands for a new request."""
        entry.closed = True
        self._driver.cancel(entry.request.rid, reason, message)

    def family(self) -> Family:
        """A metric of callers that do not read."""
        stalls = Family(
            "batchyard.stream.stalls",
            Kind.COUNTER,
            "Calls cut off, for their reader was too slow",
            "{call}",
        )
        stalls.add(self.stalls)
        return stalls

    def hand_over(self, entry: Entry) -> bool:
        """This scheduler stops, and the next one of the cluster may adopt what runs: send the
        callers there, and leave the work alone. False: nobody could come back to it.
        """
        request = entry.request
        if entry.key is None or request.continuing or request.state not in _RUNS:
            return False
        error = status.error(
            Reason.SCHEDULER_DRAINING,
            "this scheduler has stopped; the request goes on, and the next one takes it over",
            retry_after=SECOND,
        )
        callers, entry.callers = entry.callers, ()
        for caller in callers:
            caller.finish(failed(error, request.request_id), error)
        del self.entries[request.rid]
        if not self.entries:
            self.idle.set()
        return True

    def _abandon(self, entry: Entry) -> None:
        entry.detach_timer = None
        if not entry.callers:
            self.cancel(entry, Reason.CANCELLED_BY_CLIENT)

    def by_request_id(self, tenant: str, request_id: str) -> Entry | None:
        """An open entry, by its tenant and request id; of several the newest."""
        for entry in reversed(_all(self._by_id.get(request_id, ()))):
            if entry.request.tenant == tenant:
                return entry
        return None

    def finish(self, command: FinishRequest, results: ResultBuilder) -> None:
        """The core ended it: answer its callers, and remember an answer that will not change."""
        request = command.request
        entry = self.entries.pop(request.rid, None)
        if not self.entries:
            self.idle.set()
        request.context = None
        if request.output is not None:
            request.output.sink = None
        if entry is None:
            if self.on_other is not None:
                self.on_other(command, results)
            return
        known = self._by_id.pop(request.request_id)
        if known is not entry:
            rest = tuple([other for other in _all(known) if other is not entry])
            self._by_id[request.request_id] = rest[0] if len(rest) == 1 else rest
        if entry.detach_timer is not None:
            entry.detach_timer.cancel()
        if entry.reservation is not None and self._quotas is not None:
            self._quotas.release(entry.reservation, command, self._clock.now())
            entry.reservation = None
        if command.reason is Reason.POISONED and self._on_poisoned is not None:
            self._on_poisoned(request, entry.request_bytes)
        whole = entry.end(command, results)
        if entry.key is not None and _is_final(command):
            self._remember(entry.key, entry, whole, request.finished_at)
        entry.request_bytes = b""

    def _remember(self, key: Key, entry: Entry, result: bytes, now: Instant) -> None:
        body, known_hash, replays = entry.request_bytes, entry.body_hash, self._replays
        if key in replays:
            self._forget(key)
        if len(body) > _KEPT_BODY:
            body, known_hash = b"", fingerprint(body)
        replays[key] = (now, body, known_hash, result)
        self._replay_bytes += len(body) + len(result) + _PER_REPLAY
        if now > self._oldest_until or self._replay_bytes > self._replay_limit:
            self._forget_old(now)

    def _forget_old(self, now: Instant) -> None:
        """Drop what is too old or too much, and see when to look again."""
        replays = self._replays
        while replays:
            oldest = next(iter(replays))
            self._oldest_until = replays[oldest][0] + self._replay_for
            if now <= self._oldest_until and self._replay_bytes <= self._replay_limit:
                break
            self._forget(oldest)

    def _forget(self, key: Key) -> None:
        replay = self._replays.pop(key, None)
        if replay is not None:
            self._replay_bytes -= len(replay[1]) + len(replay[3]) + _PER_REPLAY


def _all(entries: Entry | tuple[Entry, ...]) -> tuple[Entry, ...]:
    return entries if isinstance(entries, tuple) else (entries,)


def _check_same(known: bytes, known_hash: bytes, given: bytes, key: Key) -> None:
    """Refuse another body under a known id. Hashes, which are dear, only for what differs at all:
    time, trace and hints may.
    """
    if known == given or (known_hash or fingerprint(known)) == fingerprint(given):
        return
    raise Refused(
        f"request id {key[2]!r} is taken by a request with another body",
        field="request_id",
        reason=Reason.REQUEST_ID_CONFLICT,
        metadata={"requestId": key[2]},
    )


def _is_final(command: FinishRequest) -> bool:
    """Whether a later try of the same request would end alike."""
    if command.outcome is _SUCCEEDED:
        return True
    reason = command.reason
    retryable = reason in status.RETRYABLE or reason is Reason.INTERNAL
    return command.outcome is Outcome.FAILED and not retryable
