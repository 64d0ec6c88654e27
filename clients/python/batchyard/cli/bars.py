"""Small bars out of block characters, for queues by priority and for slots in use."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float]) -> str:
    """One character per value, relative to the largest; a dot for nothing."""
    top = max(values, default=0)
    if top <= 0:
        return "·" * len(values)
    return "".join(
        LEVELS[min(len(LEVELS) - 1, int(value / top * len(LEVELS)))] if value > 0 else "·"
        for value in values
    )


def gauge(used: int, total: int, *, width: int = 8) -> str:
    """Slots in use: one character per slot while they fit, else in proportion."""
    if total <= 0:
        return "-"
    width = min(width, total)
    filled = min(width, -(-used * width // total))
    return "▇" * filled + "▁" * (width - filled)
