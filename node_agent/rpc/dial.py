"""How does the agent reach the scheduler, and as whom? A channel and credentials per session.

Certificates and the token are read again at each dial, so new files count from the next session on;
the session that stands is not touched.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from node_agent.config import SchedulerSection
from node_agent.rpc.settings import CHANNEL_OPTIONS, METHOD
from service_kit.certificates import CertificateError, CertificateFiles
from service_kit.secret_files import SecretFileError, read_token

log = logging.getLogger("node_agent.session")

Metadata = tuple[tuple[str, str], ...]


class DialError(Exception):
    """The files for reaching the scheduler cannot be used; says why and what to do."""


class Dialer:
    """Opens streams to schedulers."""

    def __init__(self, settings: SchedulerSection) -> None:
        """Reads the files, so that a mistake shows at start.

        Raises:
            DialError: they cannot be used.
        """
        self._settings = settings
        self._files: CertificateFiles | None = None
        tls = settings.tls
        try:
            if tls.is_on:
                self._files = CertificateFiles(
                    certificate=tls.certificate, key=tls.key, authority=tls.authority
                )
            if settings.token_file is not None:
                read_token(settings.token_file)
        except (CertificateError, SecretFileError) as fault:
            raise DialError(str(fault)) from None

    @property
    def node_id(self) -> str:
        """That the certificate names; empty: there is none, or it names none."""
        return self._files.identity.node_id if self._files is not None else ""

    @asynccontextmanager
    async def stream(self, address: str, more: Metadata = ()) -> AsyncIterator[Any]:
        """A new channel and the stream on it: a channel that is stuck is not used again. `more`
        goes with its opening.

        Raises:
            DialError: the token cannot be read now.
        """
        metadata = self._metadata()
        async with self.channel(address) as channel:
            call: Any = channel.stream_stream(METHOD)(metadata=(*metadata, *more))
            try:
                yield call
            finally:
                call.cancel()

    def _metadata(self) -> Metadata:
        path = self._settings.token_file
        if path is None:
            return ()
        try:
            return (("authorization", f"Bearer {read_token(path)}"),)
        except SecretFileError as fault:
            raise DialError(str(fault)) from None

    def channel(self, address: str) -> grpc.aio.Channel:
        """A new channel, encrypted as configured."""
        if self._files is None:
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        identity = self._files.refresh()
        credentials = grpc.ssl_channel_credentials(
            root_certificates=identity.authority or None,
            private_key=identity.key or None,
            certificate_chain=identity.certificate or None,
        )
        options: list[tuple[str, Any]] = list(CHANNEL_OPTIONS)
        if self._settings.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._settings.tls.server_name))
        return grpc.aio.secure_channel(address, credentials, options=options)


def plain_dialer() -> Dialer:
    """Of an agent that was told nothing about encryption."""
    return Dialer(SchedulerSection())
