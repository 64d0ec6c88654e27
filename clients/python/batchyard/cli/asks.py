"""Asks a scheduler through the client library: connects, waits, turns errors into texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, cast

from batchyard.cli import credentials
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin, AsyncClient

Answer = TypeVar("Answer")
Item = TypeVar("Item")


def ask(settings: Settings, work: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
    """Run `work` with a client of the scheduler's client port."""
    address = settings.client_address()

    async def connected() -> Answer:
        from batchyard import AsyncClient

        # One request per process: an RPC of its own needs no hand-shake of a shared stream.
        key, tls = credentials.api_key(settings), credentials.tls(settings)
        async with AsyncClient(address, api_key=key, tls=tls, transport="unary") as client:
            return await work(client)

    return _run(connected, address)


def ask_admin(settings: Settings, work: Callable[[AsyncAdmin], Awaitable[Answer]]) -> Answer:
    """Run `work` with a client of the admin port."""
    address = settings.admin_client_address()

    async def connected() -> Answer:
        from batchyard import AsyncAdmin

        key = credentials.api_key(settings, admin=True)
        tls = credentials.tls(settings, admin=True)
        async with AsyncAdmin(address, api_key=key, tls=tls) as admin:
            return await work(admin)

    return _run(connected, address, admin=True)


async def take(items: AsyncIterator[Item], limit: int | None = None) -> list[Item]:
    """The first `limit` items, or all."""
    taken: list[Item] = []
    async with aclosing(cast("AsyncGenerator[Item, None]", items)):
        async for item in items:
            taken.append(item)
            if len(taken) == limit:
                break
    return taken


def _run(work: Callable[[], Awaitable[Answer]], address: str, *, admin: bool = False) -> Answer:
    from batchyard import errors
    from batchyard.cli.translate import cli_error

    async def awaited() -> Answer:
        return await work()

    try:
        # Ctrl-C cancels the work first, which cancels the request on the server.
        return asyncio.run(awaited())
    except errors.BatchyardError as error:
        raise cli_error(error, address=address, admin=admin) from error
