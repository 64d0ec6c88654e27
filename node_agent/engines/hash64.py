"""Which number does this seed give for these names? Randomness without state or global source.

The same arguments give the same number in every process and on every machine; close arguments
give unrelated numbers (the finaliser of SplitMix64 between the parts).
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def hash64(seed: int, *parts: int) -> int:
    """Return 64 well-mixed bits of `seed` and `parts`, in order."""
    state = _mix(seed & _MASK)
    for part in parts:
        state = _mix((state + 0x9E3779B97F4A7C15 + (part & _MASK)) & _MASK)
    return state


def unit_interval(seed: int, *parts: int) -> float:
    """Return a number of [0, 1)."""
    return (hash64(seed, *parts) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
