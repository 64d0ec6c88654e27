"""What is written down about who may do what? One JSON file, made and changed by commands.

A grant is a token (of a client or operator), the permission of a client certificate's name, or a
join token for agents. Only the SHA-256 of a token is kept. That is enough here, and a slow hash
would add nothing: tokens are 256 random bits, which nobody can try out, unlike passwords.

The file is replaced as a whole, under a lock beside it, so commands and a running scheduler may
change it at the same time. It keeps who granted and who revoked, when and why; what is revoked
stays in it. Who may write the file could write anything there: it is a memory, not a proof.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from scheduler_service.security.principals import GRANTABLE, IMPLIED, MOST_URGENT, Right
from service_kit.secret_files import SecretFileError, read_secret, write_secret

PREFIX: Final = "batchyard"
NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,64}\Z")
MAX_NODES: Final = 10_000
REASON_MAX: Final = 256  # characters, as in AdminService
DOER_MAX: Final = 160
_TOKEN: Final = re.compile(r"batchyard_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")

Kind = Literal["client", "certificate", "join"]
KINDS: Final[tuple[Kind, ...]] = ("client", "certificate", "join")


class GrantsError(Exception):
    """The file or a change of it is not acceptable; says why, and holds no secret."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """One entry. Times are seconds since 1970, 0: not."""

    id: str  # public: in lists, logs and events
    kind: Kind
    principal: str  # of a join token: who handed it out
    digest: str = ""  # hex SHA-256 of the token; empty: a certificate's name is the proof
    rights: list[str] = field(default_factory=list)
    tenants: list[str] | None = None  # None: any
    models: list[str] | None = None  # None: all
    max_priority: int = MOST_URGENT
    label: str = ""  # for people
    created: int = 0
    created_by: str = ""  # who ran the command; empty: nobody knows
    created_reason: str = ""
    expires: int = 0  # of a join token: the last moment for a new node
    revoked: int = 0
    revoked_by: str = ""
    revoked_reason: str = ""
    uses: int = 0  # of a join token: nodes that it admits
    nodes: list[str] = field(default_factory=list)  # that it has admitted

    def right_flags(self) -> Right:
        """What it allows, with what that implies."""
        rights = Right.NONE
        for name in self.rights:
            right = GRANTABLE[name]
            rights |= IMPLIED.get(right, right)
        return rights

    def summary(self) -> str:
        """What it allows to whom, for people."""
        if self.kind == "join":
            return f"join token, {len(self.nodes)} of {self.uses} nodes"
        parts = [f"{self.kind} {self.principal}", f"may {', '.join(self.rights)}"]
        if self.tenants is not None:
            parts.append(f"tenants {', '.join(self.tenants)}")
        if self.models is not None:
            parts.append(f"models {', '.join(self.models)}")
        if self.max_priority < MOST_URGENT:
            parts.append(f"priority up to {self.max_priority}")
        return "; ".join(parts)

    def state(self, now_s: float) -> str:
        """In one word."""
        if self.revoked:
            return "revoked"
        if self.expires and self.expires <= now_s:
            return "expired"
        if self.kind == "join" and len(self.nodes) >= self.uses:
            return "used"
        return "valid"


@dataclass(slots=True, kw_only=True)
class Revocation:
    """Of a certificate."""

    revoked: int = 0  # seconds since 1970
    revoked_by: str = ""
    revoked_reason: str = ""


@dataclass(slots=True)
class Grants:
    """All that the file holds."""

    entries: dict[str, Grant] = field(default_factory=dict)  # by id
    # By hex SHA-256 of the certificate's DER form.
    revoked_certificates: dict[str, Revocation] = field(default_factory=dict)

    def add(self, grant: Grant) -> None:
        """Take it in.

        Raises:
            GrantsError: it makes no sense.
        """
        _check(grant)
        if grant.kind == "certificate":
            for other in self.entries.values():
                same = (other.kind, other.principal) == ("certificate", grant.principal)
                if same and not other.revoked and not grant.revoked:
                    raise GrantsError(
                        f"certificate name {grant.principal!r} has the grant {other.id}: "
                        "revoke that first"
                    )
        self.entries[grant.id] = grant

    def find(self, given: str) -> Grant:
        """By id, or a part of it that begins only one.

        Raises:
            GrantsError: none or several are meant.
        """
        found = [grant for grant in self.entries.values() if grant.id.startswith(given)]
        if given in self.entries:
            return self.entries[given]
        if not given or len(found) != 1:
            raise GrantsError(
                f"{len(found)} tokens have an id that begins with {given!r}: see the list"
            )
        return found[0]


def new_id() -> str:
    """Of a grant."""
    return os.urandom(6).hex()


def new_token(grant_id: str) -> tuple[str, str]:
    """A token with that id, and the digest to keep of it."""
    secret = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    token = f"{PREFIX}_{grant_id}_{secret}"
    return token, digest_of(token)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def id_of(token: str) -> str:
    """The grant that a token claims; empty: it has not the form of a token."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else ""


def holds_token(text: str) -> bool:
    """Whether a token stands anywhere in it."""
    return _TOKEN.search(text) is not None


def read(path: Path, *, missing: bool = False) -> Grants:
    """The file's content; `missing`: an absent file is an empty one.

    Raises:
        GrantsError: it cannot be used.
    """
    if missing and not path.exists():
        return Grants()
    try:
        document = json.loads(read_secret(path))
    except SecretFileError as fault:
        raise GrantsError(str(fault)) from None
    except ValueError:
        raise GrantsError(f"{path} is no JSON") from None
    try:
        return _parsed(document)
    except (KeyError, TypeError, ValueError, AttributeError, GrantsError) as fault:
        text = str(fault) if isinstance(fault, GrantsError) else "its form is not known here"
        raise GrantsError(f"{path} cannot be used: {text}") from None


@contextmanager
def changing(path: Path) -> Iterator[Grants]:
    """The content, to be changed; written at the end unless the block raises.

    Raises:
        GrantsError: it cannot be read or written.
    """
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as fault:
        raise GrantsError(f"{path} cannot be changed: {fault.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        grants = read(path, missing=True)
        yield grants
        document = {
            "version": 1,
            "entries": [asdict(grant) for grant in grants.entries.values()],
            "revoked_certificates": {
                fingerprint: asdict(revocation)
                for fingerprint, revocation in grants.revoked_certificates.items()
            },
        }
        try:
            write_secret(path, json.dumps(document, indent=1).encode() + b"\n")
        except SecretFileError as fault:
            raise GrantsError(str(fault)) from None
    finally:
        os.close(lock)


def _parsed(document: Any) -> Grants:
    if document["version"] != 1:
        raise GrantsError(f"version {document['version']!r} is not known here")
    grants = Grants()
    for fingerprint, given in document.get("revoked_certificates", {}).items():
        # Files from before who and why were kept have the time alone.
        kept = Revocation(revoked=given) if isinstance(given, int) else Revocation(**given)
        check_act(kept.revoked_by, kept.revoked_reason)
        grants.revoked_certificates[fingerprint] = kept
    for given in document["entries"]:
        grants.add(Grant(**given))
    return grants


def check_act(by: str, reason: str) -> None:
    """Whether that can stand as who did something, and why.

    Raises:
        GrantsError: it is too long, breaks lines, or holds a token.
    """
    if len(by) > DOER_MAX or not by.isprintable():
        raise GrantsError(f"who did it is at most {DOER_MAX} printable characters")
    if len(reason) > REASON_MAX or not reason.isprintable():
        raise GrantsError(f"a reason is one line of at most {REASON_MAX} printable characters")
    if holds_token(reason):
        raise GrantsError("a reason is shown to others and must not hold a token")


def _check(grant: Grant) -> None:
    if grant.kind not in KINDS:
        raise GrantsError(f"kind {grant.kind!r} is none of {', '.join(KINDS)}")
    check_act(grant.created_by, grant.created_reason)
    check_act(grant.revoked_by, grant.revoked_reason)
    if NAME.match(grant.principal) is None:
        raise GrantsError(f"{grant.principal!r} must be 1..64 of A-Z a-z 0-9 . _ : @ -")
    for right in grant.rights:
        if right not in GRANTABLE:
            raise GrantsError(f"right {right!r} is none of {', '.join(GRANTABLE)}")
    if grant.kind != "join" and not grant.rights:
        raise GrantsError(f"a principal needs a right: {', '.join(GRANTABLE)}")
    if grant.kind == "join" and not 1 <= grant.uses <= MAX_NODES:
        raise GrantsError(f"a join token is for 1..{MAX_NODES} nodes, not {grant.uses}")
    if grant.tenants is not None and not all(0 < len(t) <= 64 for t in grant.tenants):
        raise GrantsError("a tenant has 1..64 characters")
    if grant.tenants == [] or grant.models == []:
        raise GrantsError("an empty list of tenants or models allows nothing; leave it out for all")
    if not 1 <= grant.max_priority <= MOST_URGENT:
        raise GrantsError(f"priority must be 1..{MOST_URGENT}, {MOST_URGENT} = most urgent")
