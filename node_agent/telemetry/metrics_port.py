"""Where does Prometheus find an agent's metrics? On a port of their own, if it was asked for.

On loopback it answers to names of this machine only: a page that somebody's browser got from
elsewhere can have its own name point here, and would then read what this port shows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service_kit.addresses import is_local_name
from service_kit.loopback import is_loopback
from service_kit.metrics import Collect

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler


class MetricsPort:
    """The running port."""

    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self.port = port  # that was bound
        self._runner = runner

    @classmethod
    async def start(cls, host: str, port: int, metrics: Collect) -> MetricsPort:
        """Serve `/metrics` and `/healthz`. A port of 0 takes any that is free.

        Raises:
            OSError: the port cannot be had.
        """
        from aiohttp import web

        from service_kit import prometheus

        async def page(request: web.Request) -> web.Response:
            families = metrics()
            accept = request.headers.get("Accept", "")
            body, content_type = await asyncio.to_thread(prometheus.text, families, accept)
            return web.Response(body=body, headers={"Content-Type": content_type})

        async def healthz(_request: web.Request) -> web.Response:
            return web.json_response({"status": "ok"})

        @web.middleware
        async def only_here(request: web.Request, handler: Handler) -> web.StreamResponse:
            if is_loopback(host) and not is_local_name(request.host):
                text = "this port is for this machine: ask for localhost"
                return web.json_response({"error": text}, status=403)
            return await handler(request)

        app = web.Application(client_max_size=1024, middlewares=[only_here])
        app.add_routes([web.get("/metrics", page), web.get("/healthz", healthz)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        return cls(runner, int(runner.addresses[0][1]))

    async def stop(self) -> None:
        """Answer no more."""
        await self._runner.cleanup()
