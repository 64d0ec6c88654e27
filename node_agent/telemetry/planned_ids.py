"""Which id will a span have that is made only later?

An engine is given the id of its span when it starts; the span itself is made when it has ended.
"""

from __future__ import annotations

import random
from collections import deque


class PlannedIds:
    """A generator of ids, as the SDK asks for one, whose next span ids can be planned."""

    def __init__(self) -> None:
        self._random = random.Random()
        self._planned: deque[int] = deque()

    def reserve(self) -> int:
        """A fresh span id. Zero means none."""
        return self._random.randrange(1, 1 << 64)

    def plan(self, span_id: int) -> None:
        """The next span that is made has this id."""
        self._planned.append(span_id)

    def generate_span_id(self) -> int:
        """As the SDK asks for it."""
        return self._planned.popleft() if self._planned else self.reserve()

    def generate_trace_id(self) -> int:
        """As the SDK asks for it."""
        return self._random.randrange(1, 1 << 128)

    def is_trace_id_random(self) -> bool:
        """As the SDK asks for it."""
        return True
