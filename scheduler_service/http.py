"""Is the scheduler alive, and ready, and how does it do? For those that speak HTTP.

`/healthz` is answered by the event loop itself, so an answer proves that it turns. `/readyz` says
why not, in JSON. `/metrics` is for Prometheus, `/` the dashboard. Nothing is logged per request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler_service.config_security import AbuseSection
from scheduler_service.security.http_gate import HttpGate
from service_kit.http_limits import HttpLimits
from service_kit.http_log import server_log
from service_kit.http_pages import healthz, metrics_page
from service_kit.metrics import Collect

if TYPE_CHECKING:
    from aiohttp import web

    from scheduler_service.dashboard.feed import Feed

WhyNotReady = Callable[[], str]  # empty: it is ready


class HttpPort:
    """The running HTTP port."""

    def __init__(
        self, runner: web.AppRunner, port: int, limits: HttpLimits, feed: Feed | None
    ) -> None:
        self.port = port  # that was bound
        self._runner = runner
        self._limits = limits
        self._feed = feed

    async def stop(self) -> None:
        """Answer no more; pages that follow the feed see its end."""
        if self._feed is not None:
            self._feed.closed.set()
        self._limits.stop()
        await self._runner.cleanup()


async def start_http(
    host: str,
    port: int,
    *,
    ready: WhyNotReady,
    metrics: Collect | None = None,
    feed: Feed | None = None,
    gate: HttpGate | None = None,
    abuse: AbuseSection | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpPort:
    """Serve until `stop`. A port of 0 takes any that is free; `tls`: None is plain text.

    `metrics` and `feed`: what `/metrics` and the dashboard show; None: there is no such page.

    Raises:
        OSError: the port cannot be had.
    """
    from aiohttp import web  # here: 0.2 s of the cold start, after gRPC serves

    async def readyz(_request: web.Request) -> web.Response:
        reason = ready()
        if reason:
            return web.json_response({"status": "not ready", "reason": reason}, status=503)
        return web.json_response({"status": "ready"})

    limits = _limits(abuse or AbuseSection())
    app = web.Application(middlewares=[limits.count(), (gate or HttpGate(None)).check()])
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    if metrics is not None:
        app.add_routes([web.get("/metrics", metrics_page(metrics))])
    if feed is not None:
        from scheduler_service.dashboard.routes import routes

        app.add_routes(routes(feed))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, logger=server_log())
    await runner.setup()
    try:
        bound = await limits.start(runner, host, port, tls)
    except OSError:
        await runner.cleanup()
        raise
    return HttpPort(runner, bound, limits, feed)


def _limits(abuse: AbuseSection) -> HttpLimits:
    return HttpLimits(
        abuse.connections,
        first_message_s=abuse.first_message / 1e9,
        handshake_s=abuse.handshake / 1e9,
    )
