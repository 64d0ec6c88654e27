"""Which requests are refused, since they made nodes fail?

The core says who is POISONED (`core/apart.py`); their bodies are remembered here, by hash, for a
while, and refused whoever sends them again, under whatever id. The memory is bounded, and lies in
the state folder, so that a restart does not give a poisonous request three more nodes: it is on
the disk before its caller has the verdict.

Hashes are only computed where a body could be one of them: it asks for the same model with an
input of the same length. While nothing is remembered, a request costs one look at an empty dict.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.rpc.convert import Parsed, fingerprint
from scheduler_service.rpc.validate import Refused
from scheduler_service.state_file import replace_document

log = logging.getLogger(__name__)

FILE: Final = "quarantine.json"
MOST: Final = 1024  # bodies; the oldest goes
AGAIN: Final[Duration] = 10 * SECOND  # after a write that failed, as on a full disk

Likeness = tuple[str, int]  # model, length of the input


@dataclass(frozen=True, slots=True)
class Body:
    """A remembered body."""

    model: str
    length: int
    until_s: float  # seconds of the wall clock, for it outlives the process


class Quarantine:
    """The bodies that are refused."""

    def __init__(
        self, state_dir: Path | None, clock: Clock, *, keep_for: Duration = 600 * 1_000_000_000
    ) -> None:
        self._path = state_dir / FILE if state_dir is not None else None
        self._clock = clock
        self._keep_for_s = keep_for / 1e9
        self._bodies: OrderedDict[str, Body] = OrderedDict()  # by hash, the oldest first
        self.alike: dict[Likeness, int] = {}  # how many there are of each kind
        self._again_at: Instant = 0  # the last write failed: then the next request tries once more
        self._load()

    def __len__(self) -> int:
        return len(self._bodies)

    def check(self, parsed: Parsed) -> None:
        """Let it pass, unless it is one of them.

        Raises:
            Refused: POISONED.
        """
        if self._again_at and self._clock.now() >= self._again_at:
            self._save()
        if _likeness(parsed.request) not in self.alike:
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

    def _enter(self, digest: str, body: Body) -> None:
        self._bodies[digest] = body
        likeness = body.model, body.length
        self.alike[likeness] = self.alike.get(likeness, 0) + 1

    def _drop(self, digest: str) -> None:
        body = self._bodies.pop(digest, None)
        if body is not None:
            likeness = body.model, body.length
            self.alike[likeness] -= 1
            if not self.alike[likeness]:
                del self.alike[likeness]

    def _forget_old(self) -> None:
        """All are kept for equally long, so the oldest are the first to go."""
        while self._bodies:
            digest, body = next(iter(self._bodies.items()))
            if body.until_s > self._now_s() and len(self._bodies) <= MOST:
                return
            self._drop(digest)

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
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as fault:
            log.warning(
                "%s is damaged (%s): no request is refused by it",
                self._path,
                fault,
                extra={"event": "state_damaged"},
            )
        self._forget_old()

    def _save(self) -> None:
        if self._path is None:
            return
        self._again_at = 0
        bodies = [[d, b.model, b.length, b.until_s] for d, b in self._bodies.items()]
        try:
            replace_document(self._path, {"bodies": bodies})
        except OSError as fault:
            self._again_at = self._clock.now() + AGAIN
            log.warning(
                "%s cannot be written: %s; until it can, a restart forgets it",
                self._path,
                fault,
                extra={"event": "state_not_written"},
            )


def _likeness(request: Request) -> Likeness:
    """What two equal bodies have in common, without looking into them."""
    return request.model, request.traits.length if request.traits is not None else 0
