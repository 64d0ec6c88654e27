"""What can be configured about encryption, identity and limits of tenants?

The pictures behind it are in `docs/security.md`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from service_kit.config_sections import Section
from service_kit.units import PositiveDurationNs

Flag = Annotated[bool, Field(strict=True)]
PositiveCount = Annotated[int, Field(strict=True, ge=1)]


class TlsSection(Section):
    """Encryption of all ports. New files are taken up for new connections, without a restart;
    unusable ones are told in the log and change nothing."""

    certificate: Path | None = None
    """The scheduler's certificate and its chain, PEM. Absent: plain text, on loopback only."""
    key: Path | None = None
    """Its private key, PEM, readable by its owner only."""
    authority: Path | None = None
    """Who signs the certificates of agents and clients, PEM. With it, agents must show a
    certificate, and the node id in it is theirs."""
    agent_certificates: Flag = True
    """Off: agents need none and come with join tokens, though `authority` is set."""
    client_certificates: Flag = False
    """Clients and operators must show a certificate of `authority`, too; with a token beside it,
    the token says who they are. HTTP never asks for one."""


class AuthSection(Section):
    """Who may do what."""

    file: Path | None = None
    """What `batchyard tokens` writes, readable by its owner only; changes count within a second.
    Absent: no authentication, and everybody may do everything."""


class TenantSection(Section):
    """Limits of one tenant; what is over them is refused with QUOTA_EXCEEDED and costs nothing.
    Absent: no limit."""

    in_flight: PositiveCount | None = None
    """Requests that are accepted and not finished."""
    queued: PositiveCount | None = None
    """Those of them that wait for a slot."""
    requests_per_minute: PositiveCount | None = None
    """Accepted in any 60 s."""
    tokens_per_minute: PositiveCount | None = None
    """Of prompts and answers in any 60 s; estimated when a request comes, settled at its end."""
    urgent_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the requests of the last 60 s that may have priority 8 and above; one always
    may."""


class TenantsSection(Section):
    """Limits of tenants."""

    default: TenantSection = TenantSection()
    """Of every tenant that is not named; each has them for itself."""
    named: dict[Annotated[str, Field(max_length=64)], TenantSection] = Field(default_factory=dict)
    """By tenant."""


class AbuseSection(Section):
    """What one peer can hold at most, known or not."""

    connections: PositiveCount = 10_000
    """Open ones per port."""
    streams_per_connection: PositiveCount = 1_000
    """Open RPCs per connection."""
    rpcs: PositiveCount = 50_000
    """Open RPCs per port; more are answered RESOURCE_EXHAUSTED."""
    header_bytes: Annotated[int, Field(strict=True, ge=2048, le=1 << 20)] = 16_384
    """Of the headers of one RPC."""
    handshake: PositiveDurationNs = 10 * 1_000_000_000
    """For a new connection to be ready."""
    first_message: PositiveDurationNs = 30 * 1_000_000_000
    """For the request of a new RPC to be there."""
    idle_stream: PositiveDurationNs = 15 * 60 * 1_000_000_000
    """A Multiplex or reflection stream on which nothing happens for so long is ended."""
