"""How does a first installation get certificates? A small private authority, made once.

Elliptic keys (P-256), SHA-256. The authority's key signs nothing but these certificates and is not
needed while the system runs: keep it away from the machines that serve.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from service_kit.certificates import CLIENT_URI, NODE_URI
from service_kit.secret_files import read_secret, write_secret

AUTHORITY_DAYS: Final = 3650
_SKEW: Final = dt.timedelta(minutes=5)  # clocks of machines differ
_NODE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")


class AuthorityError(Exception):
    """It cannot be made or used; the message says what to do."""


class Authority:
    """Signs certificates."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> Authority:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + dt.timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """The one in this folder.

        Raises:
            AuthorityError: there is none.
            SecretFileError: its key is readable by others.
        """
        if not (folder / "ca.key").exists():
            raise AuthorityError(f"{folder} has no ca.key: `batchyard certs init` makes one")
        key = serialization.load_pem_private_key(read_secret(folder / "ca.key"), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise AuthorityError(f"{folder}/ca.key is no key of this command's making")
        return cls(key, x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()))

    def save(self, folder: Path) -> None:
        """Write ca.pem and ca.key."""
        write_secret(folder / "ca.key", key_pem(self._key))
        (folder / "ca.pem").write_bytes(pem(self.certificate))

    def issue(
        self, uri: str, hosts: Sequence[str], days: float, now: dt.datetime
    ) -> tuple[bytes, bytes]:
        """A certificate and its key, in PEM form. `hosts`: a server's names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [_host(host) for host in hosts]
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name((uri or f"batchyard {hosts[0]}")[-64:]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return pem(certificate), key_pem(key)

    def issue_node(self, node_id: str, days: float, now: dt.datetime) -> tuple[bytes, bytes]:
        """For an agent.

        Raises:
            AuthorityError: that is no node id.
        """
        if _NODE_ID.match(node_id) is None:
            raise AuthorityError(f"{node_id!r} must be 1..64 of A-Z a-z 0-9 . _ : -")
        return self.issue(NODE_URI + node_id, (), days, now)

    def issue_client(self, name: str, days: float, now: dt.datetime) -> tuple[bytes, bytes]:
        """For a client or operator.

        Raises:
            AuthorityError: that is no principal's name.
        """
        if re.fullmatch(r"[A-Za-z0-9._:@-]{1,64}", name) is None:
            raise AuthorityError(f"{name!r} must be 1..64 of A-Z a-z 0-9 . _ : @ -")
        return self.issue(CLIENT_URI + name, (), days, now)


def pem(certificate: x509.Certificate) -> bytes:
    """Its PEM form."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Its PEM form, unencrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
