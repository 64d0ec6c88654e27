"""Every HTTP path has a rule, and what it shows ends with the credential that it was shown to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from scheduler_service import http
from scheduler_service.security.http_gate import HttpGate
from scheduler_service.security.refusals import Place
from scheduler_service.security.rules import HTTP
from tests.integration.security.secured import Secured, secured, try_method, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        yield world


async def fetch(world: Secured, method: str, path: str, token: str | None) -> int:
    context = ssl.create_default_context(cadata=world.files.ca.decode())
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, f"https://{world.addresses.http}{path}", headers=headers, ssl=context
        ) as answer,
    ):
        return answer.status


async def test_every_http_path_has_a_rule_and_all_others_refuse(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    assert world.app._http is not None
    served = {
        (route.method, route.resource.canonical)
        for route in world.app._http._runner.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert served == set(HTTP)
    reader = world.files.token("reader", rights=["read"])
    world.access.refresh()
    for (method, path), rule in HTTP.items():
        if rule.open:
            assert await fetch(world, method, path, None) == 200
        else:
            assert await fetch(world, method, path, None) == 401
            assert await fetch(world, method, path, token) == 403
            found = 404 if path == "/api/explain/{request_id}" else 200  # nobody sent that one
            assert await fetch(world, method, path, reader) == found
    for path in ("/other", "/healthz/x"):
        assert await fetch(world, "GET", path, None) == 401
        assert await fetch(world, "GET", path, "nonsense") == 401
        assert await fetch(world, "GET", path, token) == 404
    assert await fetch(world, "POST", "/healthz", None) == 401
    assert await fetch(world, "POST", "/healthz", token) == 405


async def test_an_http_path_without_a_rule_is_refused(
    world: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(HTTP, ("GET", "/readyz"))
    token = world.files.token("boss", rights=["admin", "use"])
    world.access.refresh()
    assert await fetch(world, "GET", "/readyz", None) == 401
    assert await fetch(world, "GET", "/readyz", token) == 403


async def test_http_on_loopback_needs_nothing() -> None:
    port = await http.start_http("127.0.0.1", 0, ready=lambda: "")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port.port}/readyz") as answer,
    ):
        assert answer.status == 200
    await port.stop()


async def test_no_path_answers_what_no_longer_holds_or_is_for_agents(world: Secured) -> None:
    files = world.files
    expired, revoked = files.token(expires=1, rights=["read"]), files.token(rights=["read"])
    files.revoke(revoked)
    join = files.token(kind="join")
    world.access.refresh()
    forged = files.token(rights=["read"])[:-4] + "AAAA"
    for (method, path), rule in HTTP.items():
        if not rule.open:
            for token in (expired, revoked, forged, ""):
                assert await fetch(world, method, path, token) == 401, path
            assert await fetch(world, method, path, join) == 403, path


async def test_a_feed_ends_with_its_token(world: Secured) -> None:
    token = world.files.token("viewer", rights=["read"])
    world.access.refresh()
    context = ssl.create_default_context(cadata=world.files.ca.decode())
    url = f"https://{world.addresses.http}/api/watch"
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context) as answer,
    ):
        assert (await answer.content.readline()).startswith(b"data: ")
        world.files.revoke(token)
        async with asyncio.timeout(10):
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()
    await until(lambda: not world.app._guard.http_gate._open)


async def test_without_authentication_only_names_of_this_machine_are_answered() -> None:
    """A web page from elsewhere whose name was made to point at 127.0.0.1 reads nothing."""
    gate = HttpGate(None, on_loopback=True)
    port = await http.start_http("127.0.0.1", 0, ready=lambda: "", metrics=tuple, gate=gate)
    try:
        url = f"http://127.0.0.1:{port.port}"
        async with aiohttp.ClientSession() as session:
            for host, code in (
                ("evil.example", 403), ("evil.example:80", 403), ("127.0.0.1.evil.example", 403),
                ("localhost", 200), (f"localhost:{port.port}", 200), ("127.0.0.1:1", 200),
                ("[::1]:7610", 200),
            ):  # fmt: skip
                for path, expected in (("/metrics", code), ("/healthz", 200)):
                    async with session.get(url + path, headers={"Host": host}) as answer:
                        assert answer.status == expected, (host, path)
    finally:
        await port.stop()


async def metric(world: Secured, name: str) -> float:
    """Sum of a metric on the page."""
    token = world.files.token("scraper", rights=["read"])
    world.access.refresh()
    context = ssl.create_default_context(cadata=world.files.ca.decode())
    url = f"https://{world.addresses.http}/metrics"
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context) as answer,
    ):
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


async def test_what_is_refused_is_counted_and_told(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.channel("client") as channel:
        name = "/batchyard.v1.SchedulerService/ListModels"
        await try_method(channel, name, (False, False))
    await until(lambda: world.refusals.counts[Place.RPC, "UNAUTHENTICATED"] == 1)
    assert await fetch(world, "GET", "/metrics", "nonsense") == 401
    assert world.refusals.total(Place.HTTP) == 1
    [told, at_http] = [r for r in caplog.records if getattr(r, "event", "") == "access_refused"]
    assert (told.method, told.reason) == (name, "UNAUTHENTICATED")  # type: ignore[attr-defined]
    assert "127.0.0.1" in told.address  # type: ignore[attr-defined]
    assert at_http.method == "GET /metrics"  # type: ignore[attr-defined]
    assert await metric(world, "batchyard_refusals_total") == 2
