"""Which prefix blocks are in an engine's memory? Blocks in use, and idle ones, least recent first.

As block pools do it: every block of an admitted prompt is held once however many share it; when the
last holder leaves, it stays, idle, until its room is needed. A prompt's hit is its leading blocks
that are there already.
"""

from __future__ import annotations

from collections.abc import Sequence


class PrefixCache:
    """Blocks by id. Room is the engine's business; it asks how many are held and evicts."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}  # holders by block
        self._idle: dict[int, None] = {}  # least recently used first
        self.hits = 0  # blocks
        self.looked_up = 0

    @property
    def held(self) -> int:
        """Blocks in use."""
        return len(self._held)

    @property
    def idle(self) -> int:
        """Blocks that could be evicted."""
        return len(self._idle)

    def leading(self, blocks: Sequence[int]) -> int:
        """How many of the leading blocks are here."""
        count = 0
        for block in blocks:
            if block not in self._held and block not in self._idle:
                break
            count += 1
        return count

    def fresh(self, blocks: Sequence[int]) -> int:
        """How many more blocks would be held with these."""
        return sum(block not in self._held for block in blocks)

    def hold(self, blocks: Sequence[int]) -> int:
        """Hold them all; returns how many leading ones were here."""
        hit = self.leading(blocks)
        self.hits += hit
        self.looked_up += len(blocks)
        for block in blocks:
            self._idle.pop(block, None)
            self._held[block] = self._held.get(block, 0) + 1
        return hit

    def release(self, blocks: Sequence[int]) -> None:
        """One holder leaves. The end of a prompt becomes idle before its beginning does."""
        for block in reversed(blocks):
            holders = self._held[block] - 1
            if holders:
                self._held[block] = holders
            else:
                del self._held[block]
                self._idle[block] = None

    def evict(self, count: int) -> None:
        """Forget the `count` least recently used idle blocks."""
        for _ in range(min(count, len(self._idle))):
            del self._idle[next(iter(self._idle))]

    def clear(self) -> None:
        """The memory is gone."""
        self._held.clear()
        self._idle.clear()
