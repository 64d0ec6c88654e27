"""How long do most wait? A histogram of lengths of time that costs one dict entry per bar.

Bars are powers of two of microseconds, each in eight parts, so a percentile is at most 6 % off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from scheduler_service.core.types import MICROSECOND, Duration

Bars = dict[int, int]  # observations by index of the bar
_PARTS: Final = 8
_PART_BITS: Final = 3


def add(bars: Bars, length: Duration) -> None:
    """Count one observation. On the path of every request: `_index`, written out."""
    index = length // MICROSECOND
    if index >= _PARTS:
        shift = index.bit_length() - 1 - _PART_BITS
        index = (shift + 1) * _PARTS + (index >> shift) - _PARTS
    bars[index] = bars.get(index, 0) + 1


def merge_into(into: Bars, bars: Bars) -> None:
    """Add the observations of one to another."""
    for index, count in bars.items():
        into[index] = into.get(index, 0) + count


def merge(many: Iterable[Bars]) -> Bars:
    """The observations of all."""
    whole: Bars = {}
    for bars in many:
        merge_into(whole, bars)
    return whole


def percentile(bars: Bars, share: float) -> Duration | None:
    """The length that so many (0..1) are not above; None: nothing was observed."""
    total = sum(bars.values())
    passed = 0
    for index in sorted(bars):
        passed += bars[index]
        if passed >= share * total:
            return _middle(index) * MICROSECOND
    return None


def cumulative(bars: Bars, edges: Iterable[Duration]) -> list[int]:
    """How many observations are below each edge, which are rising powers of two of microseconds."""
    indices = [_index(edge // MICROSECOND) for edge in edges]
    counts = [0] * len(indices)
    for bar, number in bars.items():
        place = bisect_right(indices, bar)
        if place < len(counts):
            counts[place] += number
    return list(accumulate(counts))


def _index(value: int) -> int:
    """Below 8 one bar each; then eight bars per power of two."""
    if value < _PARTS:
        return value
    shift = value.bit_length() - 1 - _PART_BITS
    return (shift + 1) * _PARTS + (value >> shift) - _PARTS


def _middle(index: int) -> int:
    if index < _PARTS:
        return index
    shift, part = index // _PARTS - 1, index % _PARTS
    return ((_PARTS + part) << shift) + (1 << shift >> 1)
