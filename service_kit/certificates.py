"""Which certificate, key and authority are in use, and when do new ones take over?

The files are looked at again and again; a whole and valid new set replaces the old one, for
connections made from then on. A set that is not valid (a key of another certificate, an expired
one, half a file) is told once and changes nothing: what was in use stays in use.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service_kit.secret_files import SecretFileError, read_secret

log = logging.getLogger(__name__)

NODE_URI: Final = "batchyard://node/"
CLIENT_URI: Final = "batchyard://client/"
_Signature = tuple[tuple[int, int, int], ...]


class CertificateError(Exception):
    """The files cannot be used; the message says which and why, and never holds a key."""


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts that belong together. Empty: not given."""

    certificate: bytes = b""  # and its chain
    key: bytes = b""
    authority: bytes = b""  # who is trusted to sign the other side's certificate
    node_id: str = ""  # that the certificate names, if it does
    expires: dt.datetime | None = None  # the certificate


class CertificateFiles:
    """The files, and what was last good in them. May be asked from any thread."""

    def __init__(
        self, *, certificate: Path | None, key: Path | None, authority: Path | None
    ) -> None:
        """Reads them.

        Raises:
            CertificateError: they cannot be used.
        """
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self._lock = threading.Lock()
        self._signature = self._look()
        self.identity = self._read()
        self.generation = 1  # grows at each change
        self.failures = 0  # new files that could not be used

    def refresh(self) -> Identity:
        """What is in use now, after a look whether the files have changed."""
        with self._lock:
            signature = self._look()
            if signature != self._signature:
                self._signature = signature
                self._replace()
            return self.identity

    def _replace(self) -> None:
        try:
            self.identity = self._read()
        except CertificateError as fault:
            self.failures += 1
            text = "the new certificate is not used, the old one stays: %s"
            log.warning(text, fault, extra={"event": "certificate_refused"})
            return
        self.generation += 1
        log.info("a new certificate is in use", extra={"event": "certificate_replaced"})

    def _look(self) -> _Signature:
        """Changes when a file does; a file that is missing has a signature of its own."""
        found = []
        for path in (self._certificate, self._key, self._authority):
            try:
                stat = path.stat() if path is not None else None
            except OSError:
                stat = None
            found.append(
                (0, 0, 0) if stat is None else (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            )
        return tuple(found)

    def _read(self) -> Identity:
        try:
            certificate = self._certificate.read_bytes() if self._certificate else b""
            authority = self._authority.read_bytes() if self._authority else b""
            key = read_secret(self._key) if self._key else b""
        except SecretFileError as fault:
            raise CertificateError(str(fault)) from None
        except OSError as fault:
            raise CertificateError(f"{fault.filename} cannot be read: {fault.strerror}") from None
        if authority:
            _check_authority(authority, self._authority)
        node_id, expires = "", None
        if certificate:
            node_id, expires = _check_pair(certificate, key, self._certificate, self._key)
        return Identity(certificate, key, authority, node_id, expires)


def _check_authority(pem: bytes, path: Path | None) -> None:
    from cryptography import x509

    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError(f"{path} holds no certificates in PEM form") from None


def _check_pair(
    certificate: bytes, key: bytes, path: Path | None, key_path: Path | None
) -> tuple[str, dt.datetime]:
    """Whether they belong together and are valid now; the node id and the end of validity."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        own = x509.load_pem_x509_certificates(certificate)[0]
    except ValueError:
        raise CertificateError(f"{path} holds no certificate in PEM form") from None
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        raise CertificateError(f"{key_path} holds no unencrypted private key in PEM form") from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if own.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
        raise CertificateError(f"{key_path} is not the key of the certificate in {path}")
    expires = own.not_valid_after_utc
    if expires <= dt.datetime.now(dt.UTC):  # noqa: TID251  # validity is by wall clock
        raise CertificateError(f"the certificate in {path} has expired: {expires.isoformat()}")
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "", expires
    return node_id_of(names.get_values_for_type(x509.UniformResourceIdentifier)), expires


def node_id_of(names: list[str]) -> str:
    """The node id among a certificate's alternative names; empty: it is no node's."""
    found = [name.removeprefix(NODE_URI) for name in names if name.startswith(NODE_URI)]
    return found[0] if len(found) == 1 else ""
