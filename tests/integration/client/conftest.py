"""A scripted scheduler for each test, on a loopback port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.client.scripted_scheduler import ScriptedScheduler, scripted_scheduler


@pytest_asyncio.fixture
async def scheduler() -> AsyncIterator[ScriptedScheduler]:
    async with scripted_scheduler() as running:
        yield running
