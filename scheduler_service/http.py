"""Is the scheduler alive, and ready? For probes that speak HTTP.

`/healthz` is answered by the event loop itself, so an answer proves that it turns. `/readyz` says
why not, in JSON. Nothing else is served, and nothing is logged per request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler_service.security.http_gate import HttpGate

if TYPE_CHECKING:
    from aiohttp import web

WhyNotReady = Callable[[], str]  # empty: it is ready


class HttpPort:
    """The running HTTP port."""

    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self.port = port  # that was bound
        self._runner = runner

    async def stop(self) -> None:
        """Answer no more."""
        await self._runner.cleanup()


async def start_http(
    host: str,
    port: int,
    *,
    ready: WhyNotReady,
    gate: HttpGate | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpPort:
    """Serve until `stop`. A port of 0 takes any that is free; `tls`: None is plain text.

    Raises:
        OSError: the port cannot be had.
    """
    from aiohttp import web  # here: 0.2 s of the cold start, after gRPC serves

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_request: web.Request) -> web.Response:
        reason = ready()
        if reason:
            return web.json_response({"status": "not ready", "reason": reason}, status=503)
        return web.json_response({"status": "ready"})

    app = web.Application(middlewares=[(gate or HttpGate(None)).check()])
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=tls)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return HttpPort(runner, int(runner.addresses[0][1]))
