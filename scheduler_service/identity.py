"""Who is this scheduler, and how many times has it started?

The cluster id says whose work an agent holds; the term, which grows at each start, is in the high
bits of every session epoch and dispatch id, so nothing of an earlier life is taken for today's.
Both live in one file of the state folder; the key that seals cookies (`rpc/handover.py`) in one of
its own, which only its owner can read. The new term is on the disk before it is used, and the
folder is locked while the scheduler runs: two schedulers with one term would undo all fencing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scheduler_service.state_file import replace_document
from service_kit.secret_files import SecretFileError, read_secret, write_secret

log = logging.getLogger(__name__)

TERM_MAX: Final = (1 << 23) - 1
_FILE: Final = "identity.json"
LOCK: Final = "lock"
_KEY: Final = "cookies.key"
_KEY_BYTES: Final = 32
_CLUSTER_ID: Final = re.compile(r"[0-9a-f]{32}")


class IdentityError(Exception):
    """The state folder cannot be used; the message says why and what to do."""


@dataclass(slots=True)
class Identity:
    """Of this process, until `close`."""

    cluster_id: str
    term: int  # 1..2^23-1
    cookie_key: bytes = field(default=b"", repr=False)  # empty: nothing is kept
    _lock: int | None = None  # file descriptor; None: nothing is kept

    def close(self) -> None:
        """Let another scheduler use the state folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def load_identity(state_dir: Path | None) -> Identity:
    """Lock the folder, and take the next term; the folder is made where there is none.

    None: nothing is kept; a new cluster that starts with term 1, so agents bring no old work.

    Raises:
        IdentityError: it is in use, not writable, or its file is damaged.
    """
    if state_dir is None:
        return Identity(os.urandom(16).hex(), 1)
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise IdentityError(f"the state folder {state_dir} cannot be used: {fault}") from fault
    try:
        return _next(state_dir, lock)
    except BaseException:
        os.close(lock)
        raise


def _next(state_dir: Path, lock: int) -> Identity:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        raise IdentityError(
            f"another scheduler runs with the state folder {state_dir}: stop it, or give this one "
            "a state_dir of its own"
        ) from fault
    path = state_dir / _FILE
    cluster_id, term = _read(path) or (os.urandom(16).hex(), 0)
    if term >= TERM_MAX:
        raise IdentityError(f"{path}: all terms are used up; remove the file for a new cluster")
    try:
        replace_document(path, {"cluster_id": cluster_id, "term": term + 1})
    except OSError as fault:
        raise IdentityError(f"{path} cannot be written: {fault}") from fault
    return Identity(cluster_id, term + 1, _key(state_dir / _KEY), lock)


def _key(path: Path) -> bytes:
    """The cluster's key; a new one where there is none that nobody else can know."""
    try:
        if path.exists():
            try:
                kept = read_secret(path)
                if len(kept) == _KEY_BYTES:
                    return kept
                why = f"{path} is damaged"
            except SecretFileError as fault:
                why = str(fault)
            log.warning(
                "a new key is made, agents bring no old work this time: %s",
                why,
                extra={"event": "key_replaced"},
            )
        fresh = os.urandom(_KEY_BYTES)
        write_secret(path, fresh)
    except (OSError, SecretFileError) as fault:
        raise IdentityError(str(fault)) from fault
    return fresh


def _read(path: Path) -> tuple[str, int] | None:
    """What the last start left; None: there was none."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        cluster_id, term = document["cluster_id"], document["term"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise _damaged(path, str(fault)) from fault
    if not isinstance(cluster_id, str) or _CLUSTER_ID.fullmatch(cluster_id) is None:
        raise _damaged(path, "cluster_id is not 32 hex digits")
    if not isinstance(term, int) or isinstance(term, bool) or term < 1:
        raise _damaged(path, "term is not a whole number above 0")
    return cluster_id, term


def _damaged(path: Path, why: str) -> IdentityError:
    return IdentityError(
        f"{path} is damaged ({why}): restore it, or remove it for a new cluster, to which agents "
        "bring no old work"
    )
