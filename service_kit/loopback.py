"""Does an address stay on this machine? Only then may it be used without encryption."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether what is bound or dialled under this name is reached from this machine only.

    Names other than "localhost" count as remote: what they stand for can change.
    """
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def dials_loopback(address: str) -> bool:
    """The same for an address as gRPC takes it: host:port, dns:///host:port, unix:path."""
    if address.startswith("unix:"):
        return True
    bare = address.removeprefix("dns:").lstrip("/")
    return is_loopback(bare.rpartition(":")[0])
