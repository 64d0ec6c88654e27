"""The four ports of a scheduler, and whether they are free."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from batchyard.cli.failures import CliError

HOST = "127.0.0.1"
DEFAULT_BASE = 7610


@dataclass(frozen=True, slots=True)
class Ports:
    """HTTP is the base; clients, nodes and administration follow it.

    A base of 0 asks for any free ports; the scheduler's `ready` event says which they are.
    """

    base: int = DEFAULT_BASE

    @property
    def http(self) -> int:
        return self.base

    @property
    def client(self) -> int:
        return self._beside(1)

    @property
    def node(self) -> int:
        return self._beside(2)

    @property
    def admin(self) -> int:
        return self._beside(3)

    def all(self) -> dict[str, int]:
        return {"http": self.http, "client": self.client, "node": self.node, "admin": self.admin}

    def flags(self) -> list[str]:
        """The scheduler's command line for them."""
        return ["--listen-host", HOST, *self._port_flags()]

    def _beside(self, offset: int) -> int:
        return self.base + offset if self.base else 0

    def _port_flags(self) -> Iterator[str]:
        for name, port in self.all().items():
            yield f"--{name}-port"
            yield str(port)


def require_free(ports: Ports) -> None:
    """Fail with what to do unless all four can be listened on.

    gRPC listens with SO_REUSEPORT, so a second scheduler on the same ports would start without
    complaint and take half of the connections. A plain bind sees the first one.
    """
    taken = [f"{port} ({name})" for name, port in ports.all().items() if not _is_free(port)]
    if taken:
        other = ports.base + 100
        raise CliError(
            f"port {', '.join(taken)} on {HOST} is taken",
            why="another scheduler, perhaps another `batchyard dev`, is running",
            next_step=f"stop it, or start beside it: `batchyard dev --port-base {other}`",
        )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
