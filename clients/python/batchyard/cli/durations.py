"""Lengths of time as people read them: 500ms, 2.5s, 1m30s, 2h05m."""

from __future__ import annotations


def format_ms(value: float | None) -> str:
    """`value` milliseconds in at most two units; "-" when it is unknown."""
    if value is None:
        return "-"
    if value < 1000 and round(value) < 1000:
        return f"{value:.0f}ms" if value >= 10 or value == 0 else f"{value:.1f}ms"
    seconds = value / 1000
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}s"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{second:02d}s"
    hours, minute = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minute:02d}m"
    return f"{hours // 24}d{hours % 24:02d}h"
