"""A server that runs, behind a scheduler and an agent: what does it keep of its own speed?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from batchyard import AsyncClient
from benchmarks.processes import Child, child, scheduler

SLOTS = 64


@asynccontextmanager
async def behind_scheduler(
    *engine: str, models: Iterable[str], cores: frozenset[int]
) -> AsyncIterator[tuple[AsyncClient, Child, Child]]:
    """A client, the scheduler and the agent, once the client sees these models. `engine`: words of
    the agent's command that name the server.
    """
    async with scheduler("--log-format=json", cores=cores) as subject:
        at = subject.addresses
        words = ("--scheduler", at["node"], *engine, "--engine-option", f"slots={SLOTS}")
        async with (
            child("node_agent", *words, cores=cores) as agent,
            AsyncClient(at["client"]) as client,
        ):
            wanted = set(models)
            while not wanted <= {m.model async for m in client.list_models()}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # it is warming up
            yield client, subject, agent
