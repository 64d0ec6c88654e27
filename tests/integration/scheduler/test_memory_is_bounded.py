"""Does anything in the scheduler grow with the number of requests that it has served?

Every container that can be reached from the running service is counted, before and after many
requests of every kind. One that grew must be in `BOUNDED`, with its bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchyard import AsyncClient
from batchyard.errors import BatchyardError
from batchyard.v1 import InferenceRequest, JobItem, TextInput
from tests.integration.security.secured import MODEL, Secured, secured, until

pytestmark = pytest.mark.slow

OURS = ("scheduler_service.", "service_kit.")
CONTAINERS = (dict, list, set, deque, OrderedDict, defaultdict)
# What grows until it is full, and why it is bounded.
BOUNDED = {
    "._replays": "64 MB of answers that can be given again, for ten minutes",
    "._buckets.": "one a second for report.window",
    "._blocks.": "one for each ten seconds of report.memory",
    ".samples.": "likewise",
    "._ever.": "histograms, of as many bars as there are lengths",
    ".timers._order": "a number for each 5 ms in which a timer was set; its timers are in _where",
    ".timers._buckets": "likewise",
    ".teller._ended": "10,000 jobs, so that no end is told twice",
    "._youngest.": "those who left are swept out after every 1,024 who came",
}
SETTINGS = ("report.events=20", "report.finished_requests=20", "report.memory=10s",
            "report.window=5s")  # fmt: skip


async def test_no_container_grows_with_the_requests_served(tmp_path: Path) -> None:
    settings = (*SETTINGS, f"state_dir={tmp_path / 'state'}")
    async with secured(tmp_path, *settings, tls=False, auth=False) as world:
        world.start_agent("n1", slots=4)
        await world.joined("n1")
        client = AsyncClient(world.addresses.client, admin_address=world.addresses.admin, retries=0)
        async with client:
            await _serve(client, world, 100)
            before = _sizes(world.app)
            await _serve(client, world, 300)
            after = _sizes(world.app)
    grown = {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > before.get(path, 0) + 5 and not any(name in path for name in BOUNDED)
    }
    assert not grown, "\n".join(f"{p}: {s}" for p, s in sorted(grown.items()))


async def _serve(client: AsyncClient, world: Secured, count: int) -> None:
    """So many requests of each kind, to their end."""
    for number in range(0, count, 20):
        items = [
            JobItem(request=InferenceRequest(model=MODEL, text=TextInput(prompt="p")))
            for _ in range(5)
        ]
        job = await client.jobs.create(items, ttl="1s")
        await asyncio.gather(*(_one_of_each(client, n) for n in range(number, number + 20)))
        await client.jobs.wait(job.job_id)
    await until(lambda: not world.state.requests)


async def _one_of_each(client: AsyncClient, number: int) -> None:
    await client.generate("p", model=MODEL, max_tokens=2, tenant=f"tenant-{number % 5}")
    async with client.stream("p", model=MODEL, max_tokens=3) as stream:
        async for _ in stream:
            pass
    with contextlib.suppress(BatchyardError):
        await client.generate("[[fail]]", model=MODEL)
    with contextlib.suppress(BatchyardError):
        await client.generate("[[stall]]", model=MODEL, timeout="20ms")
    leaver = asyncio.ensure_future(client.generate("[[stall]]", model=MODEL))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)


def _sizes(root: object) -> dict[str, int]:
    """Elements by path, those of all objects at one path together."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("app", root)]
    while waiting:
        path, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            if not isinstance(thing, deque) or thing.maxlen is None:
                found[path] = found.get(path, 0) + len(thing)
            waiting += [(f"{path}.*", part) for part in _parts(thing)]
        elif type(thing).__module__.startswith(OURS):
            waiting += [(f"{path}.{name}", part) for name, part in _attributes(thing)]
        elif callable(thing) and hasattr(thing, "__self__"):
            waiting.append((path, thing.__self__))
    assert len(found) > 100, "the service was not looked at"
    return found


def _parts(container: Any) -> Iterator[object]:
    values = container.values() if isinstance(container, dict) else container
    return iter(list(values))


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    names = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
    for name in sorted(names | set(getattr(thing, "__dict__", ()))):
        value = getattr(thing, name, None)
        if value is not None:
            yield name, value
