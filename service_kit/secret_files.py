"""Who may read a file that holds a secret? Its owner, and nobody else."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 16 << 20
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretFileError(Exception):
    """The file cannot be used; the message says why and what to do, never what is in it."""


def read_secret(path: Path) -> bytes:
    """The content of a file that only its owner, and root, can read.

    Raises:
        SecretFileError: it cannot be read, others can read it, or it is somebody else's.
    """
    try:
        with path.open("rb") as file:
            _check(path, os.fstat(file.fileno()))
            return file.read(MAX_BYTES)
    except OSError as fault:
        raise SecretFileError(f"{path} cannot be read: {fault.strerror or fault}") from None


def read_token(path: Path) -> str:
    """The one line of a token file.

    Raises:
        SecretFileError: as above, or it is no single printable line.
    """
    text = read_secret(path).decode("ascii", "replace").strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SecretFileError(f"{path} must hold one token, on one line, and nothing else")
    return text


def write_secret(path: Path, content: bytes) -> None:
    """Put the content in place whole, readable by its owner only.

    Raises:
        SecretFileError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    except OSError as fault:
        raise SecretFileError(f"{path} cannot be written: {fault.strerror or fault}") from None


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretFileError(f"{path} is no regular file")
    if found.st_uid not in (os.geteuid(), 0):
        raise SecretFileError(
            f"{path} belongs to another user (uid {found.st_uid}), who could change it"
        )
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise SecretFileError(
            f"{path} holds a secret and others can use it (mode {mode:03o}): chmod 600 {path}"
        )
    if found.st_size > MAX_BYTES:
        raise SecretFileError(f"{path} is too large to be such a file ({found.st_size} bytes)")
