"""Plain RPCs with typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from batchyard.channel import Metadata
from batchyard.status import from_rpc_error

__all__ = ["call_stream", "call_unary"]

_TIMEOUT_S = 30.0


async def call_unary(
    method: Any, request: Any, metadata: Metadata, peer: str, *, timeout_s: float = _TIMEOUT_S
) -> Any:
    """One RPC of a generated stub; its response, or a BatchyardError."""
    try:
        return await method(request, timeout=timeout_s, metadata=metadata or None)
    except grpc.aio.AioRpcError as rpc_error:
        raise from_rpc_error(rpc_error, peer=peer) from rpc_error


async def call_stream(
    method: Any, request: Any, metadata: Metadata, peer: str
) -> AsyncIterator[Any]:
    """One server-streaming RPC without a time limit; leaving the loop cancels it."""
    rpc = method(request, metadata=metadata or None)
    try:
        async for response in rpc:
            yield response
    except grpc.aio.AioRpcError as rpc_error:
        raise from_rpc_error(rpc_error, peer=peer) from rpc_error
    finally:
        rpc.cancel()
