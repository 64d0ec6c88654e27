"""What the dashboard's feed says, without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import aiohttp

from scheduler_service import http
from scheduler_service.core.types import SECOND
from scheduler_service.dashboard.feed import Feed
from tests.integration.scheduler.admin_world import Served, serving
from tests.unit.scheduler.small_world import SmallWorld


@asynccontextmanager
async def feeding(served: Served) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    feed = Feed(served.port, served.world.clock, jaeger_url="http://jaeger/", watch_s=0.05)
    port = await http.start_http("127.0.0.1", 0, ready=lambda: "", feed=feed)
    async with aiohttp.ClientSession() as session:
        yield session, f"http://127.0.0.1:{port.port}"
    await port.stop()


async def test_feed_is_the_report_with_the_rare_events_and_the_place_of_traces() -> None:
    async with serving(SmallWorld()) as served, feeding(served) as (session, base):
        world = served.world
        await world.join("n0", slots=2)
        await world.finish(*await world.submit(2))
        await world.submit(60)
        async with session.get(f"{base}/api/report?lang=zh&window_s=30") as answer:
            document = await answer.json()
    assert document["totals"]["succeeded"] == 2
    assert document["queue_size"] == 58
    assert document["jaeger_url"] == "http://jaeger"
    assert document["window_s"] == 30
    assert [log["event"] for log in document["logs"]] == ["node_joined"]
    assert re.search(r"[\u4e00-\u9fff]", document["diagnosis"][0]["text"])


async def test_watching_gives_one_document_after_another_and_ends_with_the_port() -> None:
    async with serving(SmallWorld()) as served, feeding(served) as (session, base):
        await served.world.join("n0")
        seen: list[Any] = []
        async with session.get(f"{base}/api/watch") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            async for line in answer.content:
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:]))
                    await served.world.submit(1)
                    served.world.clock.instant += SECOND
                if len(seen) == 3:
                    break
    assert [document["totals"]["received"] for document in seen] == [0, 1, 2]


async def test_viewers_of_one_moment_share_one_document() -> None:
    async with serving(SmallWorld()) as served:
        feed = Feed(served.port, served.world.clock, jaeger_url="")
        assert feed.report({}) is feed.report({})
        assert feed.report({}) is not feed.report({"lang": "zh"})
        first = feed.report({})
        served.world.clock.instant += SECOND
        assert feed.report({}) is not first


async def test_an_explanation_is_given_and_an_unknown_request_is_not_found() -> None:
    async with serving(SmallWorld()) as served, feeding(served) as (session, base):
        await served.world.join("n0")
        await served.world.submit(1, request_id="r/1")
        async with session.get(f"{base}/api/explain/r%2F1") as answer:
            kinds = [step["kind"] for step in (await answer.json())["decisions"]]
        assert kinds == ["admit", "order", "place"]
        async with session.get(f"{base}/api/explain/never") as answer:
            assert answer.status == 404
            assert "there is no request" in (await answer.json())["error"]


async def test_the_page_takes_nothing_from_elsewhere() -> None:
    async with serving(SmallWorld()) as served, feeding(served) as (session, base):
        async with session.get(base) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            page = await answer.text()
        for name in re.findall(r'(?:src|href)="([^"#]+)"', page):
            if name != "data:,":
                assert not name.startswith(("/", "http"))
                async with session.get(f"{base}/{name}") as answer:
                    assert answer.status == 200
    for file in (resources.files("scheduler_service.dashboard") / "static").iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|innerHTML|eval\(", text), file.name
