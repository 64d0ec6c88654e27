"""Blocks are held once however many share them, and the least recently used go first."""

from __future__ import annotations

from simulator.engines.prefix_cache import PrefixCache


def test_only_leading_blocks_hit() -> None:
    cache = PrefixCache()
    assert cache.hold((1, 2, 3)) == 0
    cache.release((1, 2, 3))
    assert cache.hold((1, 2, 9)) == 2
    assert cache.hold((7, 2, 3)) == 0
    assert (cache.hits, cache.looked_up) == (2, 9)


def test_shared_blocks_are_held_until_the_last_holder_leaves() -> None:
    cache = PrefixCache()
    cache.hold((1, 2))
    cache.hold((1, 3))
    assert cache.held == 3
    cache.release((1, 2))
    assert (cache.held, cache.idle) == (2, 1)
    assert cache.fresh((1, 2, 4)) == 2


def test_the_end_of_a_prompt_is_evicted_before_its_beginning() -> None:
    cache = PrefixCache()
    for blocks in ((1, 2, 3), (4, 5)):
        cache.hold(blocks)
        cache.release(blocks)
    cache.evict(2)
    assert cache.leading((1, 2, 3)) == 1
    assert cache.leading((4, 5)) == 2
