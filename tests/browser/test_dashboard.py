"""The dashboard in a real browser, against real processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest

from tests.browser.chromium import Page, chromium
from tests.integration.cluster import Cluster, Process, cluster, until

pytestmark = [pytest.mark.slow, pytest.mark.browser]
LIVE = "document.getElementById('link').textContent === 'live'"


@contextlib.asynccontextmanager
async def shown(running: Cluster) -> AsyncIterator[Page]:
    async with chromium(f"http://{running.addresses['http']}/") as page:
        await page.until(LIVE)
        yield page


@contextlib.asynccontextmanager
async def busy(running: Cluster) -> AsyncIterator[None]:
    """Two calls that run until this is left, and four that wait behind them."""
    calls = [
        running.client.generate("[[stall]]", model="m", priority=p) for p in (9, 9, 5, 5, 5, 2)
    ]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_it_is_live_accessible_and_readable_everywhere() -> None:
    settings = ["http.jaeger_url=http://127.0.0.1:16686"]
    async with cluster(settings=settings) as running:
        await running.agent("node-one", "slots=2")
        await asyncio.gather(*(running.client.generate(f"hi {n}", model="m") for n in range(5)))
        async with shown(running) as page:
            await page.until("document.querySelector('#nodes').innerText.includes('node-one')")
            await page.until("document.querySelectorAll('#slowest tbody tr').length === 5")
            before = await page.value("document.getElementById('outcomes').innerText")
            await running.client.generate("one more", model="m")
            await page.until(f"document.getElementById('outcomes').innerText !== {before!r}")
            async with busy(running):
                await page.until("document.querySelector('#queues').innerText.includes('p2: 1')")
                await everywhere(page)
                await in_chinese(page, f"http://{running.addresses['http']}/?lang=zh")
            assert not page.complaints


async def everywhere(page: Page) -> None:
    """On both kinds of screens, light and dark: pictures, axe, nothing that sticks out."""
    for dark in (False, True):
        for name, width in (("wide", 1280), ("phone", 390)):
            await page.look(width=width, height=900, dark=dark)
            await page.shot(f"{name}-{'dark' if dark else 'light'}")
            assert not await page.violations(), (name, dark)
            fits = "document.documentElement.scrollWidth <= window.innerWidth"
            assert await page.value(fits), (name, dark)


async def in_chinese(page: Page, url: str) -> None:
    """Titles, headings, states and what the scheduler says; ids and models stay what they are."""
    await page.send("Page.navigate", url=url)
    await page.until("document.getElementById('link').textContent === '实时'")
    await page.until("document.querySelectorAll('#slowest tbody tr').length > 0")
    shown = await page.value("document.body.innerText")
    for words in ("诊断", "最慢的请求", "最久等待", "正常", "节点 node-one 加入", "未采样"):
        assert words in shown, words
    assert await page.value("document.documentElement.lang") == "zh-Hans"
    assert not await page.violations()
    await page.shot("chinese")


async def test_the_keyboard_reaches_an_explanation_and_leaves_it() -> None:
    async with cluster() as running:
        await running.agent("node-one")
        await running.client.generate("hi", model="m", request_id="the-one")
        async with shown(running) as page:
            await page.until("document.querySelector('#slowest button')")
            focused = "document.activeElement.getAttribute('aria-label')"
            for _ in range(30):
                await page.press("Tab", 9)
                if await page.value(focused) == "Explain the-one":
                    break
            assert await page.value(focused) == "Explain the-one"
            await page.press("Enter", 13, "\r")
            await page.until("document.getElementById('why').open")
            await page.until("document.getElementById('why-text').innerText.includes('node-one')")
            assert not await page.violations()
            await page.shot("explain")
            await page.press("Escape", 27)
            await page.until("!document.getElementById('why').open")
            await page.press("Tab", 9)
            assert not page.complaints


async def test_the_death_of_a_node_shows_within_three_seconds() -> None:
    async with cluster() as running:
        agent = await running.agent("node-one")
        async with shown(running) as page:
            state = "document.querySelector('#nodes tbody tr')?.innerText ?? ''"
            await page.until(f"({state}).includes('healthy')")
            agent.signal(signal.SIGKILL)
            await page.until(f"!({state}).includes('healthy')", within_s=3)
            await page.until("document.querySelector('#events').innerText.includes('is lost')")
            await page.until("document.getElementById('tiles').innerText.includes('0/0')")


async def test_it_comes_back_when_the_scheduler_does() -> None:
    async with cluster() as running, shown(running) as page:
        port = running.addresses["http"].rpartition(":")[2]
        await running.scheduler.end()
        await page.until("document.getElementById('link').textContent.includes('trying')")
        again = await Process.start(
            "again", "scheduler_service", f"--http-port={port}",
            *(f"--{kind}-port=0" for kind in ("client", "node", "admin")),
        )  # fmt: skip
        await again.until_ready()
        await page.until(LIVE)
        await again.end()
        missed = [c for c in page.complaints if "ERR_" not in c]  # the browser's own, of fetch
        assert not missed


async def test_it_works_below_a_path_of_another_server() -> None:
    """As behind a port-forward or a proxy that adds a prefix: no address is absolute."""
    async with cluster() as running, proxied(running.addresses["http"]) as base:
        async with chromium(f"{base}/tools/batchyard/") as page:
            await page.until(LIVE)
            assert not page.complaints
        await until(running.idle)


@contextlib.asynccontextmanager
async def proxied(address: str) -> AsyncIterator[str]:
    """A plain forwarder below /tools/batchyard/."""
    import aiohttp
    from aiohttp import web

    async with aiohttp.ClientSession() as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            path = request.match_info["path"]
            async with session.get(f"http://{address}/{path}") as found:
                answer = web.StreamResponse(status=found.status, headers=dict(found.headers))
                answer.headers.pop("Content-Length", None)
                await answer.prepare(request)
                with contextlib.suppress(ConnectionError):
                    async for part in found.content.iter_any():
                        await answer.write(part)
                return answer

        app = web.Application()
        app.add_routes([web.get("/tools/batchyard/{path:.*}", forward)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
