"""How long, and how often, may somebody hold a connection of an HTTP port?

aiohttp itself waits for ever for a connection's first request. Here a connection that has asked for
nothing within the time for a first message is ended, as is one between two requests, and what comes
beyond the number of connections is turned away. Requests that are being answered are left alone.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler, Middleware

SWEEP_S: Final = 1.0


class HttpLimits:
    """Of one port. Its application is to use `count`; `start` opens the port.

    `connections`: that may be open at a time. `first_message_s`: a connection may be without a
    request for so long. `handshake_s`: TLS may take so long.
    """

    def __init__(
        self, connections: int, *, first_message_s: float, handshake_s: float = 10
    ) -> None:
        self._connections = connections
        self._first_message_s = first_message_s
        self._handshake_s = handshake_s
        self._working: dict[object, int] = {}  # connections with requests, and how many
        self._quiet_since: dict[object, float] = {}  # the others, by loop time
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    def count(self) -> Middleware:
        """Knows which connections work."""
        from aiohttp import web

        @web.middleware
        async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            self._quiet_since.pop(connection, None)
            self._working[connection] = self._working.get(connection, 0) + 1
            try:
                return await handler(request)
            finally:
                self._working[connection] -= 1
                if not self._working[connection]:
                    del self._working[connection]

        return counted

    async def start(
        self, runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen; the port that was bound.

        Raises:
            OSError: it cannot be had.
        """
        loop = asyncio.get_running_loop()
        handshake_s = self._handshake_s if tls is not None else None
        self._runner = runner
        self._server = await loop.create_server(
            self._protocol, host, port, ssl=tls, ssl_handshake_timeout=handshake_s
        )
        self._sweep()
        bound: socket.socket = self._server.sockets[0]
        return int(bound.getsockname()[1])

    def stop(self) -> None:
        """Listen no more; open connections are the runner's to end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()

    def _protocol(self) -> asyncio.BaseProtocol:
        """For a new connection."""
        server = None if self._runner is None else self._runner.server
        if server is None or len(server.connections) >= self._connections:
            return _Closed()
        made: asyncio.BaseProtocol = server()
        return made

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        server = None if self._runner is None else self._runner.server
        open_now = [] if server is None else server.connections
        quiet: dict[object, float] = {}
        for connection in open_now:
            if connection in self._working:
                continue
            since = self._quiet_since.get(connection, now)
            if now - since >= self._first_message_s:
                connection.force_close()
            else:
                quiet[connection] = since
        self._quiet_since = quiet
        self._timer = loop.call_later(SWEEP_S, self._sweep)


class _Closed(asyncio.Protocol):
    """There is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
