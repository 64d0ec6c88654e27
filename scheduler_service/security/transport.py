"""With which certificates do the ports answer? New files count for new connections, at once.

gRPC asks for the certificate at every handshake, in a thread of its own; the HTTP port's context is
renewed by a timer. Connections that stand are not touched, whatever becomes of the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Final

import grpc

from scheduler_service.config_security import TlsSection
from service_kit.certificates import CertificateFiles, Identity

log = logging.getLogger(__name__)

REFRESH_S: Final = 1.0


class Transport:
    """The encryption of all ports."""

    def __init__(self, settings: TlsSection) -> None:
        """Reads the files.

        Raises:
            CertificateError: they cannot be used.
        """
        self._settings = settings
        self._files = CertificateFiles(
            certificate=settings.certificate, key=settings.key, authority=settings.authority
        )
        self._http: ssl.SSLContext | None = None
        self._http_generation = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the files every second from now on."""
        self._timer = asyncio.get_running_loop().call_later(REFRESH_S, self._tick)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._files.refresh()
        self._renew_http()
        self.start()

    def credentials(self, *, certificates: bool) -> grpc.ServerCredentials:
        """Of a gRPC port. `certificates`: whether its callers must show one."""
        first = self._files.refresh()
        told = self._files.generation

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal told
            found = self._files.refresh()
            if told == self._files.generation:
                return None
            told = self._files.generation
            return _configuration(found, certificates)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(first, certificates),
            changed,  # type: ignore[arg-type]  # None is allowed: no change
            require_client_authentication=certificates,
        )

    def http_context(self) -> ssl.SSLContext:
        """Of the HTTP port; it follows the files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._http = context
        self._load_http(context)
        return context

    def _renew_http(self) -> None:
        if self._http is not None and self._http_generation != self._files.generation:
            # The files may have been replaced once more since; then the next turn takes them.
            with contextlib.suppress(ssl.SSLError, OSError):
                self._load_http(self._http)

    def _load_http(self, context: ssl.SSLContext) -> None:
        generation = self._files.generation
        assert self._settings.certificate is not None
        context.load_cert_chain(self._settings.certificate, self._settings.key)
        self._http_generation = generation


def _configuration(found: Identity, certificates: bool) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(found.key, found.certificate)], found.authority if certificates else None
    )
