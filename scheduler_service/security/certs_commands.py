"""What do `batchyard certs init|server|node|client|revoke` do? Files in one folder."""

from __future__ import annotations

import argparse
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_service.security import access, command_line, tokens_commands
from service_kit.secret_files import write_secret

if TYPE_CHECKING:
    from scheduler_service.security.authority import Authority

_DAY_S = 24 * 3600.0


class CertsError(Exception):
    """It cannot be done; the message says what to do."""


def init(options: argparse.Namespace) -> int:
    """An authority, the scheduler's certificate, and agents' where they are named."""
    folder = options.dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "ca.key").exists():
        raise CertsError(
            f"{folder} has an authority already; `batchyard certs server|node|client` use it. "
            "For a new one, move the folder away"
        )
    authority = _authority_class().create("batchyard private authority", _now())
    authority.save(folder)
    hosts = options.hosts or [socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    _server(options, authority, hosts)
    for node_id in options.nodes:
        _node(options, authority, node_id)
    sys.stderr.write(
        f"scheduler.yaml: tls: {{certificate: {folder}/scheduler.pem, key: {folder}/scheduler.key, "
        f"authority: {folder}/ca.pem}}\n"
        f"keep {folder}/ca.key away from the machines that serve\n"
    )
    return 0


def server(options: argparse.Namespace) -> int:
    """A new certificate for the scheduler; a running one takes it up within a second."""
    _server(options, _authority(options.dir), options.hosts)
    return 0


def node(options: argparse.Namespace) -> int:
    """For agents."""
    authority = _authority(options.dir)
    for node_id in options.nodes:
        _node(options, authority, node_id)
    return 0


def client(options: argparse.Namespace) -> int:
    """For clients and operators."""
    authority = _authority(options.dir)
    for name in options.names:
        with _told():
            issued = authority.issue_client(name, _days(options), _now())
        _save(options.dir, f"client-{name}", *issued)
    return 0


def revoke(options: argparse.Namespace) -> int:
    """Refuse a certificate before it expires."""
    pem = options.certificate.read_bytes()
    if b"BEGIN CERTIFICATE" not in pem:
        raise CertsError(f"{options.certificate} holds no certificate in PEM form")
    fingerprint = access.fingerprint_of(pem)
    path = command_line.grants_path(options)
    tokens_commands.revoke_certificate(path, fingerprint, options.reason)
    sys.stderr.write(f"{fingerprint}: revoked\n")
    return 0


def _server(options: argparse.Namespace, authority: Authority, hosts: list[str]) -> None:
    _save(options.dir, "scheduler", *authority.issue("", hosts, _days(options), _now()))


def _node(options: argparse.Namespace, authority: Authority, node_id: str) -> None:
    with _told():
        issued = authority.issue_node(node_id, _days(options), _now())
    _save(options.dir, f"node-{node_id}", *issued)


def _save(folder: Path, name: str, certificate: bytes, key: bytes) -> None:
    """The key first: the certificate is what a reader takes as the sign of a new pair."""
    write_secret(folder / f"{name}.key", key)
    draft = folder / f".{name}.pem.new"
    draft.write_bytes(certificate)
    draft.replace(folder / f"{name}.pem")
    sys.stderr.write(f"wrote {folder}/{name}.pem and {name}.key\n")


def _authority(folder: Path) -> Authority:
    with _told():
        return _authority_class().load(folder)


def _authority_class() -> type[Authority]:
    try:
        from scheduler_service.security.authority import Authority
    except ImportError:
        raise CertsError("this needs cryptography: pip install 'batchyard[scheduler]'") from None
    return Authority


class _told:  # noqa: N801  # reads as a statement
    """Turns an authority's refusal into this module's error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, fault: BaseException | None, _trace: object) -> None:
        from scheduler_service.security.authority import AuthorityError

        if isinstance(fault, AuthorityError):
            raise CertsError(str(fault)) from None


def _days(options: argparse.Namespace) -> float:
    return float(options.valid_for) / _DAY_S


def _now() -> datetime:
    return datetime.fromtimestamp(tokens_commands.now_s(), UTC)
