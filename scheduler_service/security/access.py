"""Whose credential is this? What the grants' file says, kept up to date while the scheduler runs.

The file is looked at every second. What was revoked, changed or has expired ends at that moment:
its `Principal` is no longer `live`, calls that come on open streams are refused, and the gate ends
its streams (`on_end`). A file that cannot be used is told once; what held before still holds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.security import grants
from scheduler_service.security.grants import Grant, Grants
from scheduler_service.security.principals import Principal, Right
from service_kit.certificates import CLIENT_URI, node_id_of

log = logging.getLogger(__name__)

REFRESH_S: Final = 1.0
_CERTIFICATES_MAX: Final = 4096  # fingerprints remembered


class JoinRefused(Exception):
    """This credential does not admit that node; the message says why."""


@dataclass(slots=True)
class Proof:
    """A connection's certificate, as gRPC verified it."""

    names: list[str]  # alternative names
    pem: bytes


class Access:
    """Who has access. Made on the loop; `start` to keep it up to date."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        """Reads the file; None: there is none, and nobody can have a token. Each time it is taken
        up, `on_read` hears it; the first time with `start`.

        Raises:
            GrantsError: it cannot be used.
        """
        self._path = path
        self._clock = clock
        self._grants = grants.read(path) if path is not None else Grants()
        self._seen = self._look()
        self._principals: dict[str, tuple[Grant, Principal]] = {}  # by grant id
        self._nodes: dict[tuple[str, str], Principal] = {}  # by node id and fingerprint
        self._fingerprints: dict[bytes, str] = {}  # by PEM
        self._timer: asyncio.TimerHandle | None = None
        self.on_end: list[Callable[[Principal], None]] = []
        self.on_read: list[Callable[[Grants], None]] = []
        self._take()

    def start(self) -> None:
        """Look at the file every second from now on."""
        self._tell_read()
        self._again()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def by_token(self, token: str) -> Principal | None:
        """Whose token that is; None: nobody's (any more)."""
        found = self._principals.get(grants.id_of(token))
        if found is None:
            return None
        grant, principal = found
        same = hmac.compare_digest(grant.digest, grants.digest_of(token))
        return principal if same and self._holds(grant, principal) else None

    def by_certificate(self, proof: Proof) -> Principal | None:
        """Whose certificate that is: a node's, or a client's that has a grant."""
        fingerprint = self._fingerprint(proof.pem)
        if fingerprint in self._grants.revoked_certificates:
            return None
        node_id = node_id_of(proof.names)
        if node_id:
            key = (node_id, fingerprint)
            if key not in self._nodes:
                self._nodes[key] = Principal(
                    f"node/{node_id}", Right.AGENT, credential=fingerprint, node_id=node_id
                )
            return self._nodes[key]
        names = [n.removeprefix(CLIENT_URI) for n in proof.names if n.startswith(CLIENT_URI)]
        for grant, principal in self._principals.values():
            if grant.kind == "certificate" and names == [grant.principal]:
                return principal if self._holds(grant, principal) else None
        return None

    def join(self, principal: Principal, node_id: str) -> str:
        """The id under which an agent with this credential is known: its certificate's, or the
        one it gives if its join token has admitted that node or has room for it.

        Raises:
            JoinRefused: it may not.
        """
        grant = self._joins_by(principal, node_id)
        if grant is not None and self._path is not None:
            try:
                with grants.changing(self._path) as written:
                    mine = self._with_room(written, grant, node_id)
                    if node_id not in mine.nodes:
                        mine.nodes.append(node_id)
            except grants.GrantsError as fault:
                log.error("a node cannot be admitted: %s", fault, extra={"event": "access_refused"})
                raise JoinRefused("the scheduler cannot write down who it admitted") from None
            grant.nodes.append(node_id)
        return principal.node_id or node_id

    def why_not_join(self, principal: Principal, node_id: str) -> str:
        """Why `join` would refuse it now; empty: it would not. Nothing is written down."""
        try:
            grant = self._joins_by(principal, node_id)
            if grant is not None and self._path is not None:
                self._with_room(grants.read(self._path), grant, node_id)
        except (JoinRefused, grants.GrantsError) as refused:
            return str(refused)
        return ""

    def _joins_by(self, principal: Principal, node_id: str) -> Grant | None:
        """The join token that is yet to admit the node; None: it needs none (any more).

        Raises:
            JoinRefused: the credential is of another kind.
        """
        found = self._principals.get(principal.credential)
        if principal.node_id or found is None:  # without authentication everybody is local
            return None
        grant, _ = found
        if node_id in grant.nodes:
            return None
        if self._path is None or grant.kind != "join":
            raise JoinRefused("this credential admits no nodes")
        return grant

    def _with_room(self, written: Grants, grant: Grant, node_id: str) -> Grant:
        """The token as it is written down, with room for the node.

        Raises:
            JoinRefused: it has none, or the node is another token's.
        """
        mine = written.entries.get(grant.id)
        state = "revoked" if mine is None else mine.state(self._now_s())
        if mine is None or (state != "valid" and node_id not in mine.nodes):
            raise JoinRefused(_why_not(state, grant))
        owner = _owner(written, node_id)
        if owner not in ("", grant.id):
            raise JoinRefused(f"node {node_id!r} was admitted by the join token {owner}")
        return mine

    def _holds(self, grant: Grant, principal: Principal) -> bool:
        """Whether it can be used at this moment."""
        if not principal.live:
            return False
        state = grant.state(self._now_s())
        # Nodes that it admitted come back with it for as long as it is not revoked.
        return state == "valid" or (
            grant.kind == "join" and state != "revoked" and bool(grant.nodes)
        )

    def _now_s(self) -> float:
        return self._clock.wall_ns(self._clock.now()) / 1e9

    def _fingerprint(self, pem: bytes) -> str:
        known = self._fingerprints.get(pem)
        if known is None:
            if len(self._fingerprints) >= _CERTIFICATES_MAX:
                self._fingerprints.clear()
            known = self._fingerprints[pem] = fingerprint_of(pem)
        return known

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(REFRESH_S, self._tick)

    def _tick(self) -> None:
        self.refresh()
        self._again()

    def _tell_read(self) -> None:
        if self._path is not None:
            for hear in self.on_read:
                hear(self._grants)

    def refresh(self) -> None:
        """Look at the file and the time now."""
        seen = self._look()
        if seen != self._seen and self._path is not None:
            self._seen = seen
            try:
                self._grants = grants.read(self._path)
            except grants.GrantsError as fault:
                text = "the changed file is not used, what was granted stays: %s"
                log.warning(text, fault, extra={"event": "access_refused"})
                return
            self._take()
            self._tell_read()
        for grant, principal in list(self._principals.values()):
            if principal.live and not self._holds(grant, principal):
                self._end(principal)
        for principal in list(self._nodes.values()):
            if principal.credential in self._grants.revoked_certificates:
                del self._nodes[principal.node_id, principal.credential]
                self._end(principal)

    def _look(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            found = None
        return (0, 0, 0) if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)

    def _take(self) -> None:
        """Make principals of what is new or has changed, and end those of what is gone."""
        former, self._principals = self._principals, {}
        for grant in self._grants.entries.values():
            known = former.pop(grant.id, None)
            if known is not None and _allows(known[0]) == _allows(grant):
                self._principals[grant.id] = (grant, known[1])
                continue
            if known is not None:
                self._end(known[1])
            if not grant.revoked:
                self._principals[grant.id] = (grant, principal_of(grant))
        for _, principal in former.values():
            self._end(principal)

    def _end(self, principal: Principal) -> None:
        principal.live = False
        text = "the credential %s of %r has ended"
        fields = {"event": "access_ended", "principal": principal.name}
        log.info(text, principal.credential, principal.name, extra=fields)
        for hear in self.on_end:
            hear(principal)


def principal_of(grant: Grant) -> Principal:
    """What it makes of its bearer."""
    if grant.kind == "join":
        return Principal(f"join/{grant.id}", Right.AGENT, credential=grant.id)
    return Principal(
        grant.principal,
        grant.right_flags(),
        credential=grant.id,
        tenants=None if grant.tenants is None else tuple(grant.tenants),
        models=None if grant.models is None else frozenset(grant.models),
        max_priority=grant.max_priority,
    )


def fingerprint_of(pem: bytes) -> str:
    """Hex SHA-256 of the first certificate's DER form."""
    text = pem.decode("ascii", "replace").partition("-----BEGIN CERTIFICATE-----")[2]
    try:
        body = base64.b64decode(text.partition("-----END CERTIFICATE-----")[0])
    except binascii.Error:
        body = pem
    return hashlib.sha256(body).hexdigest()


def _allows(grant: Grant) -> tuple[object, ...]:
    """What makes a difference to its bearer."""
    return (
        grant.kind, grant.principal, grant.digest, tuple(grant.rights), grant.tenants and
        tuple(grant.tenants), grant.models and tuple(grant.models), grant.max_priority,
        bool(grant.revoked),
    )  # fmt: skip


def _owner(written: Grants, node_id: str) -> str:
    """Id of the live join token that admitted the node; empty: none has."""
    for grant in written.entries.values():
        if node_id in grant.nodes and not grant.revoked:
            return grant.id
    return ""


def _why_not(state: str, grant: Grant) -> str:
    if state == "used":
        nodes = ", ".join(grant.nodes[:3])
        return f"join token {grant.id} is used up: it admitted {nodes}"
    return f"join token {grant.id} is {state}"
