"""Which requests are refused, since they made nodes fail, and which may yet be?

The core says who is POISONED (`core/apart.py`); their bodies are remembered here, by hash, for a
while, and refused whoever sends them again, under whatever id. The memory is bounded, and lies in
the state folder, so that a restart does not give a poisonous request three more nodes: it is on
the disk before its caller has the verdict.

The core also says which nodes died with a request that is not condemned yet. That lies there, too,
by tenant and request id, until the request ends well: when it comes again, as a job's item or a
call whose client re-attaches, the count goes on. Two requests with equal bodies, of which there may
be many, are not taken for each other.

Hashes are only computed where a body could be one of them: it asks for the same model with an
input of the same length. While nothing is remembered, a request costs one look at an empty dict.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from scheduler_service.clock import Clock
from scheduler_service.core.commands import RememberDeaths
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.rpc.convert import Parsed, fingerprint
from scheduler_service.rpc.validate import Refused
from scheduler_service.state_file import replace_document

log = logging.getLogger(__name__)
K = TypeVar("K")

FILE: Final = "quarantine.json"
MOST: Final = 1024  # bodies, and as many suspects; the oldest goes
AGAIN: Final[Duration] = 10 * SECOND  # after a write that failed, as on a full disk
PAUSE: Final[Duration] = SECOND // 4  # between writes for deaths, which may come in swarms

Likeness = tuple[str, int]  # model, length of the input
Name = tuple[str, str]  # tenant, request id


@dataclass(frozen=True, slots=True)
class Body:
    """A remembered body."""

    model: str
    length: int
    until_s: float  # seconds of the wall clock, for it outlives the process


@dataclass(frozen=True, slots=True)
class Suspect:
    """A remembered request that may be a cause of deaths."""

    model: str
    length: int
    until_s: float
    nodes: tuple[str, ...]  # that died with it


class Quarantine:
    """The bodies that are refused, and the requests that nodes died with."""

    def __init__(
        self, state_dir: Path | None, clock: Clock, *, keep_for: Duration = 600 * 1_000_000_000
    ) -> None:
        self._path = state_dir / FILE if state_dir is not None else None
        self._clock = clock
        self._keep_for_s = keep_for / 1e9
        self._bodies: OrderedDict[str, Body] = OrderedDict()  # by hash, the oldest first
        self._suspects: OrderedDict[Name, Suspect] = OrderedDict()  # the oldest first
        self.alike: dict[Likeness, int] = {}  # how many there are of each kind, of both
        self._again_at: Instant = 0  # the last write failed: then the next request tries once more
        self._rests_until: Instant = 0  # for deaths nothing is written before
        self._timer: asyncio.TimerHandle | None = None  # a write is due
        self._load()

    def __len__(self) -> int:
        return len(self._bodies)

    def check(self, parsed: Parsed) -> None:
        """Let it pass, unless it is one of them; state which nodes died with it before.

        Raises:
            Refused: POISONED.
        """
        if self._again_at and self._clock.now() >= self._again_at:
            self._save()
        if _likeness(parsed.request) not in self.alike:
            return
        self.recall(parsed.request)
        if not self._bodies:
            return
        body = self._bodies.get(fingerprint(parsed.data).hex())
        if body is None:
            return
        left_s = body.until_s - self._now_s()
        if left_s <= 0:
            self._forget_old()
            return
        raise Refused(
            "this request made several nodes fail one after the other: it is refused for the next "
            f"{left_s:.0f} s, whatever its id",
            reason=Reason.POISONED,
        )

    def add(self, request: Request, data: bytes) -> None:
        """Refuse its body from now on. `data`: the InferenceRequest as it came."""
        if not data or self._keep_for_s <= 0:
            return
        digest = fingerprint(data).hex()
        self._drop(digest)
        self._enter(digest, Body(*_likeness(request), self._now_s() + self._keep_for_s))
        self._forget_old()
        self._save()

    def recall(self, request: Request) -> None:
        """State which nodes died with it in an earlier life, if any."""
        suspect = self._suspects.get((request.tenant, request.request_id))
        if suspect is None or (suspect.model, suspect.length) != _likeness(request):
            return
        if suspect.until_s > self._now_s():
            request.former_deaths = suspect.nodes
        else:
            self._forget_old()

    def remember(self, command: RememberDeaths) -> None:
        """Keep what the core says of deaths."""
        if self._keep_for_s <= 0:
            return
        until_s = self._now_s() + self._keep_for_s
        for request, nodes in command.deaths:
            name = request.tenant, request.request_id
            self._clear(name)
            if nodes:
                self._suspect(name, Suspect(*_likeness(request), until_s, nodes))
        self._forget_old()
        self._save_soon()

    def close(self) -> None:
        """Write what is due."""
        if self._timer is not None:
            self._save()

    def _enter(self, digest: str, body: Body) -> None:
        self._bodies[digest] = body
        self._count(body, 1)

    def _drop(self, digest: str) -> None:
        body = self._bodies.pop(digest, None)
        if body is not None:
            self._count(body, -1)

    def _suspect(self, name: Name, suspect: Suspect) -> None:
        self._suspects[name] = suspect
        self._count(suspect, 1)

    def _clear(self, name: Name) -> None:
        suspect = self._suspects.pop(name, None)
        if suspect is not None:
            self._count(suspect, -1)

    def _count(self, kept: Body | Suspect, change: int) -> None:
        likeness = kept.model, kept.length
        count = self.alike.pop(likeness, 0) + change
        if count:
            self.alike[likeness] = count

    def _forget_old(self) -> None:
        """All are kept for equally long, so the oldest are the first to go."""
        now_s = self._now_s()
        while (digest := _first_to_go(self._bodies, now_s)) is not None:
            self._drop(digest)
        while (name := _first_to_go(self._suspects, now_s)) is not None:
            self._clear(name)

    def _now_s(self) -> float:
        return self._clock.wall_ns(self._clock.now()) / 1e9

    def _load(self) -> None:
        if self._path is None:
            return
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            latest_s = self._now_s() + self._keep_for_s  # whatever the wall clock did meanwhile
            for digest, model, length, until_s in found["bodies"][-MOST:]:
                body = Body(str(model), int(length), min(float(until_s), latest_s))
                self._enter(str(digest), body)
            for tenant, rid, model, length, until_s, nodes in found.get("suspects", [])[-MOST:]:
                until_s = min(float(until_s), latest_s)
                suspect = Suspect(str(model), int(length), until_s, tuple(map(str, nodes)))
                self._suspect((str(tenant), str(rid)), suspect)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as fault:
            log.warning(
                "%s is damaged (%s): what it says of poisonous requests is lost",
                self._path,
                fault,
                extra={"event": "state_damaged"},
            )
        self._forget_old()

    def _save_soon(self) -> None:
        """At once, or once after the pause."""
        wait = self._rests_until - self._clock.now()
        if wait <= 0:
            self._save()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait / 1e9, self._save)

    def _save(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._path is None:
            return
        self._again_at = 0
        self._rests_until = self._clock.now() + PAUSE
        bodies = [[d, b.model, b.length, b.until_s] for d, b in self._bodies.items()]
        suspects = [
            [*name, s.model, s.length, s.until_s, s.nodes] for name, s in self._suspects.items()
        ]
        try:
            replace_document(self._path, {"bodies": bodies, "suspects": suspects})
        except OSError as fault:
            self._again_at = self._clock.now() + AGAIN
            log.warning(
                "%s cannot be written: %s; until it can, a restart forgets it",
                self._path,
                fault,
                extra={"event": "state_not_written"},
            )


def _first_to_go(kept: Mapping[K, Body] | Mapping[K, Suspect], now_s: float) -> K | None:
    """The oldest, if its time is over or there are too many."""
    for key, oldest in kept.items():
        return None if oldest.until_s > now_s and len(kept) <= MOST else key
    return None


def _likeness(request: Request) -> Likeness:
    """What two equal bodies have in common, without looking into them."""
    return request.model, request.traits.length if request.traits is not None else 0
