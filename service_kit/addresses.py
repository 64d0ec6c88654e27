"""How are a host and a port written as one? An IPv6 address stands in brackets."""

from __future__ import annotations

import ipaddress


def bare(host: object) -> object:
    """The host without the brackets of an address; what is no text is returned as it is."""
    return host.removeprefix("[").removesuffix("]") if isinstance(host, str) else host


def joined(host: str, port: int) -> str:
    """host:port, or [host]:port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_local_name(host: str) -> bool:
    """Whether a Host header names an address, or this machine. Addresses cannot be made to point
    elsewhere.
    """
    before, _, port = host.rpartition(":")
    name = (before if port.isdecimal() else host).strip("[]").lower()
    if name in ("localhost", "") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
