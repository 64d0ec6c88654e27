"""Randomness without a generator: the same seed and subject give the same number, everywhere."""

from __future__ import annotations

from hashlib import blake2b


def hash64(seed: int, *subject: int | str) -> int:
    """64 bits that depend on all arguments, the same in every process.

    A purpose among the arguments keeps draws apart: adding one does not shift another.
    """
    text = "\x1f".join(str(part) for part in (seed, *subject))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
