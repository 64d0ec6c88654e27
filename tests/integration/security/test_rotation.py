"""Certificates and tokens change under load: no call fails and no session is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest

from batchyard import AsyncClient
from scheduler_service.security import grants
from scheduler_service.security.authority import Authority
from tests.integration.security.secured import (
    MODEL,
    Files,
    Secured,
    bearer,
    code_of,
    now,
    secured,
    try_method,
    until,
)

pytestmark = pytest.mark.slow
LIST_MODELS = "/batchyard.v1.SchedulerService/ListModels"


@asynccontextmanager
async def load(world: Secured, token: str) -> AsyncIterator[list[str]]:
    """Requests all the time; any that fails raises at the end. Gives the answers so far."""
    answers: list[str] = []
    stop = asyncio.Event()

    async def ask(client: AsyncClient) -> None:
        while not stop.is_set():
            answers.append((await client.generate("[[tokens=3]]", model=MODEL, timeout=10)).node_id)

    async with AsyncClient(world.addresses.client, api_key=token, tls=world.files.ca) as client:
        tasks = [asyncio.create_task(ask(client)) for _ in range(4)]
        try:
            await until(lambda: len(answers) > 10)
            yield answers
            more = len(answers) + 10
            await until(lambda: len(answers) > more or any(t.done() for t in tasks))
        finally:
            stop.set()
            await asyncio.gather(*tasks)


def epochs(world: Secured) -> dict[str, int]:
    return {node_id: node.epoch for node_id, node in world.state.nodes.items() if node.alive}


async def test_certificates_rotate_under_load(tmp_path: Path) -> None:
    """Behaviour 124: server certificate, then the authority; sessions and calls go on, a new agent
    joins with what is new, and what is old is trusted no more.
    """
    async with secured(tmp_path) as world:
        files = world.files
        token = files.token()
        world.access.refresh()
        for n in range(5):
            files.issue_node(f"n{n}")
            world.start_agent(certificate=f"node-n{n}", slots=4)
        for n in range(5):
            await world.joined(f"n{n}")
        before = epochs(world)
        old_ca = files.ca
        async with load(world, token):
            generation = world.app._guard._transport._files.generation
            files.issue_server()
            await until(lambda: world.app._guard._transport._files.generation > generation)
            files.issue_node("n5")
            world.start_agent(certificate="node-n5", slots=4)
            await world.joined("n5")
            files.authority = Authority.create("the next authority", now())
            files.authority.save(files.folder)
            files.issue_server()
            files.issue_node("n6")
            world.start_agent(certificate="node-n6", slots=4)
            await world.joined("n6")
        after = epochs(world)
        assert {node_id: after[node_id] for node_id in before} == before
        async with world.channel("client", ca=old_ca) as channel:
            call = channel.unary_unary(LIST_MODELS)(b"", metadata=bearer(token), timeout=5)
            assert await code_of(call) is grpc.StatusCode.UNAVAILABLE


async def test_a_bad_new_certificate_keeps_the_old_one_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path) as world:
        token = world.files.token()
        world.access.refresh()
        files = world.app._guard._transport._files
        key, _ = world.files.pair("scheduler")
        for content in (b"nonsense", other_certificate(tmp_path / "x")):
            failures = files.failures
            (tmp_path / "scheduler.pem").write_bytes(content)
            await until(lambda: files.failures > failures)  # noqa: B023  # awaited here
            async with world.channel("client") as channel:
                call = try_method(channel, LIST_MODELS, (False, False), bearer(token))
                assert await call is grpc.StatusCode.OK
        told = [r for r in caplog.records if getattr(r, "event", "") == "certificate_refused"]
        assert [r.levelno for r in told] == [logging.WARNING, logging.WARNING]
        assert key.decode() not in caplog.text


def other_certificate(folder: Path) -> bytes:
    """A valid certificate of another key."""
    folder.mkdir()
    return Authority.create("another", now()).issue("", ["localhost"], 1.0, now())[0]


async def test_http_follows_the_certificate(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        files = world.files
        files.authority = Authority.create("the next authority", now())
        files.authority.save(files.folder)
        files.issue_server()
        context = ssl.create_default_context(cadata=files.ca.decode())
        url = f"https://{world.addresses.http}/healthz"

        async def answers() -> bool:
            try:
                async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as got:
                    return got.status == 200
            except aiohttp.ClientError:
                return False

        transport = world.app._guard._transport
        await until(lambda: transport._http_generation == 2)
        assert await answers()


async def test_tokens_rotate_without_a_failed_call(tmp_path: Path) -> None:
    """A second token of the same principal, then the first is revoked; agents' join tokens, too."""
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        first, join = world.files.token(), world.files.token(kind="join")
        world.access.refresh()
        world.start_agent("n1", token=join, slots=4)
        await world.joined("n1")
        before = epochs(world)
        async with load(world, first):
            second = world.files.token()
            await until(lambda: world.access.by_token(second) is not None)
            async with load(world, second) as answers:
                assert answers
        world.files.revoke(first)
        async with load(world, second):
            await until(lambda: world.access.by_token(first) is None)
        async with world.channel("client") as channel:
            call = try_method(channel, LIST_MODELS, (False, False), bearer(first))
            assert await call is grpc.StatusCode.UNAUTHENTICATED
        assert epochs(world) == before


async def test_a_revoked_token_ends_its_open_streams(tmp_path: Path) -> None:
    async with secured(tmp_path, auth=True) as world:
        token = world.files.token("ops", rights=["read"])
        world.access.refresh()
        async with world.channel("admin") as channel:
            call = channel.unary_stream("/batchyard.v1.AdminService/WatchEvents")(
                b"", metadata=bearer(token)
            )
            await until(lambda: world.gate._open)
            world.files.revoke(token)
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        await until(lambda: not world.gate._open)


async def test_an_expired_token_ends_by_itself(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        token = world.files.token("ops", rights=["read"], expires=int(now().timestamp()) + 2)
        world.access.refresh()
        async with world.channel("admin") as channel:
            call = channel.unary_stream("/batchyard.v1.AdminService/WatchEvents")(
                b"", metadata=bearer(token)
            )
            await until(lambda: world.gate._open)
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_damaged_grants_file_changes_nothing_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path) as world:
        token = world.files.token()
        world.access.refresh()
        good = world.files.grants.read_bytes()
        world.files.grants.write_bytes(good[:40])
        world.access.refresh()
        assert world.access.by_token(token) is not None
        world.files.grants.write_bytes(good)
        os.chmod(world.files.grants, 0o644)  # noqa: PTH101
        with pytest.raises(grants.GrantsError, match="chmod 600"):
            grants.read(world.files.grants)
        assert "the changed file is not used" in caplog.text
        assert token not in caplog.text


def test_files_of_the_test_are_private(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for path in (files.grants, tmp_path / "ca.key", tmp_path / "scheduler.key"):
        assert path.stat().st_mode & 0o077 == 0
