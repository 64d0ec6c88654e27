"""How long do RPCs take, by method and status? As OpenTelemetry's conventions for RPC have it.

Streams count when they end, with all of their length.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from service_kit.metrics import Counted, Family, Kind

EDGES_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_NAMES: Final[dict[Any, str]] = {
    **{code.value[0]: code.name for code in grpc.StatusCode},
    **{code: code.name for code in grpc.StatusCode},
    None: "OK",
}


class RpcTimes:
    """Of the methods that this server has; their number bounds that of the series."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Counted] = {}

    def ended(self, method: str, code: Any, fault: BaseException | None, took_s: float) -> None:
        """An RPC has ended. `code`: as its context has it; `fault`: what its handler raised."""
        if isinstance(fault, asyncio.CancelledError):
            name = "CANCELLED"
        elif fault is not None and not isinstance(fault, grpc.aio.AbortError):
            name = "UNKNOWN"
        else:
            name = _NAMES.get(code, "UNKNOWN")
        key = (method, name)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Counted(EDGES_S)
        row.add(took_s)

    def family(self) -> Family:
        """As a metric."""
        found = Family(
            "rpc.server.call.duration",
            Kind.HISTOGRAM,
            "Of RPCs that ended",
            "s",
            ("rpc.method", "rpc.status_code"),
            EDGES_S,
        )
        for (method, code), row in self._rows.items():
            found.add(row.bins(), method, code)
        return found
