"""How is a scheduler reached? Addresses, credentials, channel options and metadata."""

from __future__ import annotations

import ipaddress
import os
import weakref
from pathlib import Path
from typing import Any, Union

import grpc

from batchyard.errors import InvalidRequest
from batchyard.version import version

__all__ = [
    "ADMIN_ADDRESS",
    "ADDRESS",
    "Metadata",
    "Tls",
    "admin_address_of",
    "address_of",
    "check_token_stays_secret",
    "metadata_of",
    "open_channel",
]

ADDRESS = "127.0.0.1:7611"
ADMIN_ADDRESS = "127.0.0.1:7613"
_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:")

Metadata = tuple[tuple[str, str], ...]
Tls = Union[bool, str, "os.PathLike[str]", bytes, grpc.ChannelCredentials, None]

MESSAGE_BYTES_MAX = 64 * 1024 * 1024

# One owner of retries: gRPC's own are off. Reconnecting after at most 2 s, not 2 minutes.
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
)

# While one of them is there, grpc.aio has a thread; a child that is forked then has its locks and
# not the thread: calls hang there for ever, or end the process.
_channels: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()
_forked_in_use = False


def _note_fork() -> None:
    global _forked_in_use
    _forked_in_use = _forked_in_use or len(_channels) > 0


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_note_fork)


def address_of(given: str | None) -> str:
    """`given`, else BATCHYARD_ADDRESS, else 127.0.0.1:7611."""
    return _checked(given or os.environ.get("BATCHYARD_ADDRESS") or ADDRESS, "address", 7611)


def admin_address_of(given: str | None, client: str = ADDRESS) -> str:
    """`given`, else BATCHYARD_ADMIN_ADDRESS, else two ports above the client address."""
    chosen = given or os.environ.get("BATCHYARD_ADMIN_ADDRESS")
    if chosen:
        return _checked(chosen, "admin_address", 7613)
    host, _, port = client.rpartition(":")
    above = int(port) + 2 if port.isdecimal() else 0
    return f"{host}:{above}" if host and 2 < above < 65_536 else ADMIN_ADDRESS


def metadata_of(api_key: str | None) -> Metadata:
    """What goes with every RPC."""
    if not api_key:
        return ()
    if not api_key.isascii() or not api_key.isprintable():
        raise InvalidRequest("must be printable ASCII", field="api_key")
    return (("authorization", f"Bearer {api_key}"),)


def check_token_stays_secret(address: str, api_key: str | None, tls: Tls) -> None:
    """Refuse to send a token to another machine in plain text, unless `tls` is False, which says
    that this is meant.

    Raises:
        InvalidRequest: it would be sent.
    """
    if api_key and tls is None and not _is_on_this_machine(address):
        raise InvalidRequest(
            f"the token would go to {address} in plain text, for all on the way to read: give the "
            "root certificates of the scheduler (or True for the machine's own); False says that "
            "the network encrypts",
            field="tls",
        )


def open_channel(address: str, tls: Tls) -> grpc.aio.Channel:
    """A channel that connects when it is first used.

    Raises:
        RuntimeError: this process was forked from one whose clients were in use.
    """
    if _forked_in_use:
        raise RuntimeError(
            "gRPC was in use where this process was forked, and does not work here: fork before "
            'the first call, or start processes by multiprocessing\'s "spawn"'
        )
    options: list[tuple[str, Any]] = [
        *_OPTIONS,
        ("grpc.primary_user_agent", f"batchyard-python/{version()}"),
    ]
    if _is_on_this_machine(address):
        # `http_proxy` is set for the way out; no proxy reaches our loopback.
        options.append(("grpc.enable_http_proxy", 0))
    if tls is None or tls is False:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, _credentials(tls), options=options)
    _channels.add(channel)
    return channel


def _is_on_this_machine(address: str) -> bool:
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    target = address.removeprefix("dns:").lstrip("/").removeprefix("ipv4:").removeprefix("ipv6:")
    host = target.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, though it may begin with 127


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    if isinstance(tls, grpc.ChannelCredentials):
        return tls
    if tls is True:
        return grpc.ssl_channel_credentials()
    if isinstance(tls, bytes):
        return grpc.ssl_channel_credentials(root_certificates=tls)
    if isinstance(tls, str | os.PathLike):
        return grpc.ssl_channel_credentials(root_certificates=Path(tls).read_bytes())
    raise InvalidRequest(
        "must be True, a path or the bytes of root certificates, or grpc.ChannelCredentials",
        field="tls",
    )


def _checked(address: str, field: str, port: int) -> str:
    """gRPC's own forms ("dns:///a:1", "unix:/run/b.sock") pass; a bare host gets the port.

    gRPC itself dials what is left of a port modulo 65536, and 443 where there is none.
    """
    if "://" in address and not address.startswith(_SCHEMES):
        scheme = address.partition("://")[0]
        raise InvalidRequest(
            f'{address!r} is no address; leave out "{scheme}://" and use tls= for TLS', field=field
        )
    if not address.strip() or any(letter.isspace() for letter in address):
        raise InvalidRequest(f'{address!r} is no address; write "host:port"', field=field)
    if address.startswith(_SCHEMES):
        return address
    if _is_ipv6(address):
        return f"[{address}]:{port}"
    if ":" not in address or address.endswith("]"):
        return f"{address}:{port}"
    host, _, given = address.rpartition(":")
    plain = (host.startswith("[") and host.endswith("]")) or ":" not in host
    if not host or not plain or not given.isdecimal() or not 0 < int(given) < 65_536:
        raise InvalidRequest(
            f'{address!r} is no address; write "host:port", with a port of 1..65535', field=field
        )
    return address


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
