"""How long does an engine that stops let its work go on? Until it has ended, at most the grace."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def wait_within(ended: asyncio.Event, grace_s: float) -> None:
    """Return once that is set, or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await ended.wait()
