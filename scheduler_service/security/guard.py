"""How do the parts of security come together? Built from the configuration, used by `app.py`."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

import grpc

from scheduler_service.clock import Clock
from scheduler_service.config import SchedulerConfig
from scheduler_service.security.access import Access
from scheduler_service.security.gate import Gate
from scheduler_service.security.grants import GrantsError
from scheduler_service.security.http_gate import HttpGate
from scheduler_service.security.quotas import Quotas
from scheduler_service.security.refusals import Refusals
from scheduler_service.security.transport import Transport
from service_kit.certificates import CertificateError
from service_kit.loopback import is_loopback
from service_kit.metrics import Family

log = logging.getLogger(__name__)


class GuardError(Exception):
    """The scheduler cannot be made safe as configured; says why and what to do."""


class Guard:
    """Encryption, identity, rules and limits of one scheduler."""

    def __init__(self, config: SchedulerConfig, clock: Clock) -> None:
        """Reads all files.

        Raises:
            GuardError: they cannot be used.
        """
        self._config = config
        tls, abuse = config.tls, config.abuse
        authenticates = config.auth.file is not None
        try:
            self.access = Access(config.auth.file, clock)
            self._transport = Transport(tls) if tls.certificate is not None else None
        except (GrantsError, CertificateError) as fault:
            raise GuardError(str(fault)) from None
        self.refusals = Refusals(clock)
        self.gate = Gate(
            self.access,
            tokens=authenticates,
            refusals=self.refusals,
            first_message_s=abuse.first_message / 1e9,
            idle_stream_s=abuse.idle_stream / 1e9,
        )
        self.http_gate = HttpGate(
            self.access if authenticates else None,
            self.refusals,
            on_loopback=is_loopback(config.listen.host),
        )
        self.quotas = Quotas(config.tenants)
        self._asks_agents = tls.authority is not None and tls.agent_certificates

    def start(self) -> None:
        """Follow the files from now on, and say what is open."""
        self.access.start()
        if self._transport is not None:
            self._transport.start()
        if self._config.listen.insecure and not is_loopback(self._config.listen.host):
            open_to = [
                what
                for what, absent in (
                    ("nothing is encrypted", self._transport is None),
                    ("callers are not authenticated", self._config.auth.file is None),
                )
                if absent
            ]
            if open_to:
                text = "insecure by configuration: %s"
                log.warning(text, " and ".join(open_to), extra={"event": "insecure"})

    def stop(self) -> None:
        """Follow no more."""
        self.access.stop()
        if self._transport is not None:
            self._transport.stop()

    def families(self) -> list[Family]:
        """Metrics of what was refused, and of all RPCs."""
        return [self.refusals.family(), self.quotas.family(), self.gate.times.family()]

    def credentials(self, *, agents: bool) -> Callable[[], grpc.ServerCredentials] | None:
        """Makes the encryption of a port for agents, or for others; None: plain text."""
        transport = self._transport
        if transport is None:
            return None
        asks = self._asks_agents if agents else self._config.tls.client_certificates
        return lambda: transport.credentials(certificates=asks)

    def http_context(self) -> ssl.SSLContext | None:
        """The encryption of the HTTP port; None: plain text."""
        return None if self._transport is None else self._transport.http_context()
