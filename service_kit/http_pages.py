"""Which pages do the HTTP ports of the scheduler and of an agent share? Its metrics, and its life.

aiohttp and the Prometheus library are imported with the first page that is made: gRPC serves first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from service_kit.metrics import Collect

if TYPE_CHECKING:
    from aiohttp import web


async def healthz(_request: web.Request) -> web.Response:
    """Answered by the event loop itself: an answer proves that it turns."""
    from aiohttp import web

    return web.json_response({"status": "ok"})


def metrics_page(metrics: Collect) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler of `/metrics`: what `metrics` collects, in the form that was asked for."""
    from aiohttp import web

    from service_kit import prometheus

    async def page(request: web.Request) -> web.Response:
        families = metrics()
        accept = request.headers.get("Accept", "")
        body, content_type = await asyncio.to_thread(prometheus.text, families, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return page
