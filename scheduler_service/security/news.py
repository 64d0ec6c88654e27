"""What of the grants' file is news? Each grant, change and revocation is told once.

What was told is kept in the state folder, so a scheduler tells at its start what was changed while
none ran, and nothing twice. Told first, noted then: a crash between the two repeats it. Without a
state folder nothing is known of before, and what the file holds at the start is no news.

The file says who did it and why, unless it was changed by hand: then it was `UNKNOWN`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scheduler_service.core import records
from scheduler_service.security.grants import Grant, Grants, Revocation
from scheduler_service.state_file import replace_document

log = logging.getLogger(__name__)

FILE: Final = "grants_told.json"
UNKNOWN: Final = "unknown"
_REVOKED: Final = "revoked"
_CERTIFICATE: Final = "certificate "  # before its fingerprint, as a key
# The scheduler itself adds nodes, and the rest is told as who and why.
_NO_TERMS: Final = frozenset(
    {"nodes", "label", "created", "created_by", "created_reason", "revoked", "revoked_by",
     "revoked_reason"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One act upon somebody's access."""

    kind: str  # of the event
    credential: str  # a grant's id, or a certificate's fingerprint
    what: str  # for people
    by: str
    reason: str = ""
    at_s: int = 0  # since 1970; 0: not known

    def data(self) -> dict[str, str]:
        """The event's attributes."""
        found = {"credential": self.credential, "what": self.what, "reason": self.reason}
        if self.at_s:
            found["change_time"] = datetime.fromtimestamp(self.at_s, UTC).isoformat()
        return found


class GrantsNews:
    """Compares what the file says with what was told of it."""

    def __init__(self, state_dir: Path | None, tell: Callable[[Change], None]) -> None:
        self._path = state_dir / FILE if state_dir is not None else None
        self._tell = tell
        # By grant, or revoked certificate: a digest of what it allows, or that it is revoked. None:
        # nothing is known.
        self._told: dict[str, str] | None = self._read()

    def look(self, grants: Grants) -> None:
        """Tell what is new in it."""
        stands = {grant.id: _standing(grant) for grant in grants.entries.values()}
        stands |= {_CERTIFICATE + each: _REVOKED for each in grants.revoked_certificates}
        before, self._told = self._told, stands
        if before is not None:
            for change in _changes(before, grants, stands):
                self._tell(change)
        if before != stands:
            self._write()

    def _read(self) -> dict[str, str] | None:
        if self._path is None:
            return None
        try:
            told = json.loads(self._path.read_text(encoding="utf-8"))["told"]
            return {str(credential): str(standing) for credential, standing in told.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            log.warning(
                "%s is damaged (%s): all grants are told again",
                self._path,
                fault,
                extra={"event": "state_damaged"},
            )
            return {}

    def _write(self) -> None:
        if self._path is None:
            return
        try:
            replace_document(self._path, {"told": self._told})
        except OSError as fault:
            text = "%s cannot be written: %s; a restart tells its changes again"
            log.warning(text, self._path, fault, extra={"event": "state_not_written"})


def _changes(before: dict[str, str], grants: Grants, after: dict[str, str]) -> Iterator[Change]:
    """From how things stood when they were last told to how they stand."""
    for grant in grants.entries.values():
        stood = before.get(grant.id)
        if stood is None:
            yield _granted(grant)
        if grant.revoked:
            if stood != _REVOKED:
                yield _revoked(grant.id, grant.summary(), grant)
        elif stood == _REVOKED:
            yield Change(records.ACCESS_GRANTED, grant.id, grant.summary(), UNKNOWN)
        elif stood not in (None, after[grant.id]):
            yield Change(records.ACCESS_CHANGED, grant.id, grant.summary(), UNKNOWN)
    for fingerprint, revocation in grants.revoked_certificates.items():
        if _CERTIFICATE + fingerprint not in before:
            yield _revoked(fingerprint, _named(fingerprint), revocation)
    for credential in before:
        if credential not in after:
            yield from _gone(credential, before[credential])


def _granted(grant: Grant) -> Change:
    return Change(
        records.ACCESS_GRANTED,
        grant.id,
        grant.summary(),
        grant.created_by or UNKNOWN,
        grant.created_reason,
        grant.created,
    )


def _revoked(credential: str, what: str, act: Grant | Revocation) -> Change:
    by = act.revoked_by or UNKNOWN
    return Change(records.ACCESS_REVOKED, credential, what, by, act.revoked_reason, act.revoked)


def _gone(credential: str, stood: str) -> Iterator[Change]:
    """What the file no longer has; a revoked grant that is cleared away changes nothing."""
    if credential.startswith(_CERTIFICATE):
        fingerprint = credential.removeprefix(_CERTIFICATE)
        yield Change(records.ACCESS_GRANTED, fingerprint, _named(fingerprint), UNKNOWN)
    elif stood != _REVOKED:
        what = "a grant that is gone from the file"
        yield Change(records.ACCESS_REVOKED, credential, what, UNKNOWN)


def _standing(grant: Grant) -> str:
    """What it allows, in a digest that says nothing; or that it is revoked."""
    if grant.revoked:
        return _REVOKED
    terms = {name: value for name, value in asdict(grant).items() if name not in _NO_TERMS}
    return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:32]


def _named(fingerprint: str) -> str:
    return f"certificate {fingerprint[:16]}"
