"""Which paths does the dashboard answer? The page from the package's own files, and its feed.

Everything comes from here and nothing from elsewhere, and the browser is told so: it works offline
and behind a port-forward, below any path. Addresses in the page are relative.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Final

from aiohttp import web

from scheduler_service.dashboard.feed import Feed
from scheduler_service.rpc.validate import Refused

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES: Final = {
    "/": ("page.html", "text/html"),
    "/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/parts.js": ("parts.js", "text/javascript"),
    "/words.js": ("words.js", "text/javascript"),
}
UNREAD_S: Final = 30.0  # for a viewer to read what was written
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(feed: Feed) -> list[web.RouteDef]:
    """All of them; who may call them is `security/rules.py`."""
    made = [web.get(path, _file(*about)) for path, about in FILES.items()]

    async def report(request: web.Request) -> web.Response:
        return _json(feed.report(request.query))

    async def explain(request: web.Request) -> web.Response:
        try:
            return _json(feed.explanation(request.match_info["request_id"], request.query))
        except Refused as refused:
            return web.json_response({"error": str(refused)}, status=404)

    async def watch(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        going = True
        with contextlib.suppress(ConnectionError, TimeoutError):  # the viewer has left, or hangs
            while going:
                async with asyncio.timeout(UNREAD_S):
                    await answer.write(f"data: {feed.report(request.query)}\n\n".encode())
                going = await feed.pause()
        return answer

    made.append(web.get("/api/report", report))
    made.append(web.get("/api/watch", watch))
    made.append(web.get("/api/explain/{request_id}", explain))
    return made


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json", headers=HEADERS)


def _file(name: str, content_type: str) -> Handler:
    text = (resources.files(__package__) / "static" / name).read_text(encoding="utf-8")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type, headers=HEADERS)

    return page
