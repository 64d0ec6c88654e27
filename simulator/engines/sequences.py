"""What is one sequence inside a continuous engine, and how much memory do all of them hold?"""

from __future__ import annotations

from simulator.engines.interface import Work
from simulator.engines.prefix_cache import PrefixCache


class Sequence:
    """An attempt from its admission's queue to its last token."""

    __slots__ = ("done_at", "joined_at", "order", "remaining", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.order = 0  # of admission; the latest is the first to be preempted
        self.remaining = 0  # prompt tokens still to be read
        self.joined_at = 0  # iteration after which it decodes
        self.done_at = 0  # iteration with its last token; 0: it does not decode

    @property
    def tokens(self) -> int:
        """To be read before the next output token: the prompt, and what was made before a
        preemption.
        """
        return self.work.prompt_tokens + self.work.made

    def made(self, iteration: int) -> int:
        """Output tokens after that iteration."""
        if not self.done_at:
            return self.work.made
        return self.work.to_make - (self.done_at - iteration)


class KvMemory:
    """Tokens held by sequences, with shared prefix blocks counted once, and idle blocks beside."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.own = 0  # tokens that no block covers: prompts without blocks, and all output
        self.cache = PrefixCache()
        self._block_tokens = 0

    @property
    def used(self) -> int:
        """Tokens that cannot be evicted."""
        return self.own + self.cache.held * self._block_tokens

    @property
    def room(self) -> int:
        """Tokens that may still be held, idle blocks evicted."""
        return self.capacity - self.used

    def admits(self, sequence: Sequence, running: int) -> bool:
        """Whether its prompt fits now, and after it a token for everybody."""
        arrival = sequence.work.arrival
        fresh = self.cache.fresh(arrival.blocks) * arrival.block_tokens
        needs = fresh + _own(sequence, sequence.work.made)
        return self.used + needs + running + 1 <= self.capacity

    def admit(self, sequence: Sequence) -> int:
        """Hold its prompt; how many of its tokens are there already. One is always read."""
        arrival = sequence.work.arrival
        self.own += _own(sequence, sequence.work.made)
        hit = 0
        if arrival.blocks:
            self._block_tokens = self._block_tokens or arrival.block_tokens
            assert arrival.block_tokens == self._block_tokens, "one size of blocks per engine"
            hit = self.cache.hold(arrival.blocks) * self._block_tokens
        self._trim()
        return min(hit, sequence.tokens - 1)

    def release(self, sequence: Sequence, made: int) -> None:
        """Give its memory back; its blocks stay as long as there is room."""
        self.own -= _own(sequence, made)
        self.cache.release(sequence.work.arrival.blocks)

    def grow(self, tokens: int) -> None:
        """So many more tokens of output are held."""
        self.own += tokens
        self._trim()

    def _trim(self) -> None:
        """Evict idle blocks that there is no room for any more."""
        if self.cache.idle:
            fits = max(0, self.room) // self._block_tokens
            if self.cache.idle > fits:
                self.cache.evict(self.cache.idle - fits)

    def clear(self) -> None:
        """The process is gone."""
        self.own = 0
        self.cache.clear()


def _own(sequence: Sequence, made: int) -> int:
    """Tokens that its blocks do not cover: the rest of the prompt, and `made` of output."""
    work = sequence.work
    covered = len(work.arrival.blocks) * work.arrival.block_tokens
    return max(0, work.prompt_tokens - covered) + made
