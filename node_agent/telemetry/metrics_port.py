"""Where does Prometheus find an agent's metrics? On a port of their own, if it was asked for.

On loopback it answers to names of this machine only: a page that somebody's browser got from
elsewhere can have its own name point here, and would then read what this port shows. Connections
are few, and those that ask for nothing are ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service_kit.addresses import is_local_name
from service_kit.http_limits import HttpLimits
from service_kit.http_log import server_log
from service_kit.http_pages import healthz, metrics_page
from service_kit.loopback import is_loopback
from service_kit.metrics import Collect

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler


CONNECTIONS: Final = 64  # open at a time
IDLE_S: Final = 90.0  # without a request: longer than Prometheus pauses between two, as a rule


class MetricsPort:
    """The running port."""

    def __init__(self, runner: web.AppRunner, port: int, limits: HttpLimits) -> None:
        self.port = port  # that was bound
        self._runner = runner
        self._limits = limits

    @classmethod
    async def start(
        cls, host: str, port: int, metrics: Collect, *, idle_s: float = IDLE_S
    ) -> MetricsPort:
        """Serve `/metrics` and `/healthz`. A port of 0 takes any that is free; a connection that
        asks for nothing in `idle_s` is ended.

        Raises:
            OSError: the port cannot be had.
        """
        from aiohttp import web

        @web.middleware
        async def only_here(request: web.Request, handler: Handler) -> web.StreamResponse:
            if is_loopback(host) and not is_local_name(request.host):
                text = "this port is for this machine: ask for localhost"
                return web.json_response({"error": text}, status=403)
            return await handler(request)

        limits = HttpLimits(CONNECTIONS, first_message_s=idle_s)
        app = web.Application(client_max_size=1024, middlewares=[limits.count(), only_here])
        app.add_routes([web.get("/metrics", metrics_page(metrics)), web.get("/healthz", healthz)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, logger=server_log())
        await runner.setup()
        try:
            bound = await limits.start(runner, host, port)
        except OSError:
            await runner.cleanup()
            raise
        return cls(runner, bound, limits)

    async def stop(self) -> None:
        """Answer no more."""
        self._limits.stop()
        await self._runner.cleanup()
