"""Who asks for a change? For events and logs."""

from __future__ import annotations

import re
from typing import Final

import grpc

from scheduler_service.security.principals import current

_PEER: Final = re.compile(r"ipv[46]:(.+):\d+")


def principal_of(context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
    """Who asks: the credential's principal; without authentication, where the call is from."""
    name = current().name
    if name:
        return name
    peer = context.peer()
    match = _PEER.fullmatch(peer)
    return f"anonymous@{match[1] if match else peer}"
