"""On which ports does the scheduler answer, and with which limits? gRPC, health, reflection.

Clients, nodes and operators have ports of their own; services that are given the same port share a
server. Health is on every port, reflection too. Keepalive: agents and clients may ping as often as
every 10 s (protos/README.md), so no default setting of ours ends in GOAWAY too_many_pings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from scheduler_service.config_security import AbuseSection
from scheduler_service.security.gate import Gate
from service_kit.addresses import joined

_HEALTH_NAMES: Final = ("", "liveness", "readiness")
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


class BindError(Exception):
    """A port cannot be had; the message says which, and what to do."""


@dataclass(slots=True)
class Service:
    """One of our gRPC services."""

    name: str  # full
    handlers: grpc.GenericRpcHandler
    port: int  # 0: any free one, of its own
    # Makes the encryption of its port; None: plain text.
    credentials: Callable[[], grpc.ServerCredentials] | None = None


@dataclass(slots=True)
class Servers:
    """The running servers. Nothing gets to a service but through the gate."""

    gate: Gate = field(default_factory=Gate)
    abuse: AbuseSection = field(default_factory=AbuseSection)

    ports: dict[str, int] = field(default_factory=dict)  # by service
    _servers: list[grpc.aio.Server] = field(default_factory=list)
    _health: health_aio.HealthServicer = field(default_factory=health_aio.HealthServicer)
    _names: list[str] = field(default_factory=list)

    async def start(self, host: str, services: Sequence[Service], max_message_bytes: int) -> None:
        """Bind all, then serve.

        Raises:
            BindError: a port is taken or not allowed.
        """
        groups: dict[object, list[Service]] = {}
        for service in services:
            key: object = service.port if service.port else service.name
            groups.setdefault(key, []).append(service)
        for group in groups.values():
            self._bind(host, group, max_message_bytes)
        self._names = [*_HEALTH_NAMES, *(service.name for service in services)]
        for server in self._servers:
            await server.start()
        await self.set_serving(True)

    def _bind(self, host: str, group: Sequence[Service], max_message_bytes: int) -> None:
        server = grpc.aio.server(
            interceptors=[self.gate],
            options=_options(max_message_bytes, self.abuse),
            maximum_concurrent_rpcs=self.abuse.rpcs,
        )
        server.add_generic_rpc_handlers([service.handlers for service in group])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.name for service in group]
        shown = [*names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        reflection.enable_server_reflection([*shown, reflection.SERVICE_NAME], server)
        address = joined(host, group[0].port)
        make = group[0].credentials
        try:
            if make is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, make())
        except RuntimeError:
            port = 0
        if port == 0:
            raise BindError(
                f"{address} cannot be had for {', '.join(names)}: is another scheduler running "
                "there? Stop it, or choose other ports (listen.*_port, --port-base)"
            )
        self._servers.append(server)
        for name in names:
            self.ports[name] = port

    async def set_serving(self, serving: bool) -> None:
        """What health checks are told."""
        for name in self._names:
            await self._health.set(name, _SERVING if serving else _NOT_SERVING)

    async def stop(self, grace_s: float | None) -> None:
        """End all RPCs that are left after `grace_s` seconds, on all ports at once."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))


def _options(max_message_bytes: int, abuse: AbuseSection) -> list[tuple[str, Any]]:
    return [
        ("grpc.so_reuseport", 0),  # two schedulers on one port would split the callers
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.max_connection_idle_ms", 900_000),
        ("grpc.max_concurrent_streams", abuse.streams_per_connection),
        ("grpc.max_metadata_size", abuse.header_bytes),
        ("grpc.absolute_max_metadata_size", abuse.header_bytes),
        ("grpc.server_handshake_timeout_ms", abuse.handshake // 1_000_000),
        ("grpc.max_allowed_incoming_connections", abuse.connections),
    ]
