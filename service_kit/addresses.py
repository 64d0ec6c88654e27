"""How are a host and a port written as one? An IPv6 address stands in brackets."""

from __future__ import annotations


def bare(host: object) -> object:
    """The host without the brackets of an address; what is no text is returned as it is."""
    return host.removeprefix("[").removesuffix("]") if isinstance(host, str) else host


def joined(host: str, port: int) -> str:
    """host:port, or [host]:port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
