"""Which engines of a large pool may have room, to draw some at random from?

With a thousand nodes nothing may look at each of them for each request. A pool of more than
`SMALL` engines keeps a list of those that may have room: whatever frees room puts an engine in
(`State.touch_engine`), and one that is found full when it is drawn is taken out.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduler_service.core.hashing import hash64
from scheduler_service.core.types import Engine

SMALL: Final = 32  # up to so many eligible engines all are scored
SAMPLES: Final = 5  # else so many, and where its prefix may be known
POINTS: Final = 16  # on the ring, per engine

_MULTIPLIER: Final = 6364136223846793005  # of a 64 bit congruential generator
_INCREMENT: Final = 1442695040888963407
_MASK: Final = (1 << 64) - 1


class Openings:
    """The engines of one large pool, by room and by ring."""

    __slots__ = ("_all", "_places", "_ring", "_seed", "engines", "where")

    def __init__(self, usable: Sequence[Engine], seed: int) -> None:
        self.engines = list(usable)  # that may have room
        self.where = {engine: place for place, engine in enumerate(self.engines)}
        self._all = list(usable)
        self._seed = seed
        self._places: list[int] = []  # made when the first key asks
        self._ring: list[Engine] = []

    def add(self, engine: Engine) -> None:
        """It may have room."""
        if engine not in self.where:
            self.where[engine] = len(self.engines)
            self.engines.append(engine)

    def discard(self, engine: Engine) -> None:
        """It has none."""
        place = self.where.pop(engine)
        last = self.engines.pop()
        if last is not engine:
            self.engines[place] = last
            self.where[last] = place

    def draw(self, number: int, answer: Callable[[Engine], bool | None]) -> list[Engine]:
        """Up to five that will do, by the random number; all that will where few have room.

        Args:
            number: 64 random bits.
            answer: whether an engine will do; None for one that has no room at all.
        """
        if len(self.engines) <= SMALL:
            return self._all_that_do(answer)
        found: list[Engine] = []
        tries = 0
        while len(found) < SAMPLES and tries < 4 * SAMPLES and self.engines:
            engine = self.engines[(number >> 32) % len(self.engines)]
            number = (number * _MULTIPLIER + _INCREMENT) & _MASK
            does = answer(engine)
            if does is None:
                self.discard(engine)
                continue
            tries += 1
            if does and engine not in found:
                found.append(engine)
        return found

    def _all_that_do(self, answer: Callable[[Engine], bool | None]) -> list[Engine]:
        found = []
        for engine in list(self.engines):
            does = answer(engine)
            if does is None:
                self.discard(engine)
            elif does:
                found.append(engine)
        return found

    def from_place(self, key_hash: int) -> Iterator[Engine]:
        """The engines from the key's place on the ring on; some more than once."""
        if not self._ring:
            ring = sorted(
                (hash64(self._seed, e.node.node_id, e.engine_id, point, "ring"), number)
                for number, e in enumerate(self._all)
                for point in range(POINTS)
            )
            self._places = [at for at, _ in ring]
            self._ring = [self._all[number] for _, number in ring]
        start = bisect.bisect(self._places, key_hash)
        yield from self._ring[start:]
        yield from self._ring[:start]
