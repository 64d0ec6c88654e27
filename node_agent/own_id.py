"""Which name does this agent go by, where nobody gave it one?

Two agents of one host must differ, also when they were started by the same command. Each holds a
lock on a file that is named for its id, as long as it runs; who finds it taken puts a number behind
the id and tries again. The kernel lets go of a dead agent's lock, so a restart gets its id back.
Without a folder for such files the first id is taken as it is: the scheduler refuses a second agent
of that name, and says so.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

# They decide which GPUs a process sees.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
MOST = 64  # agents of one id on a host


class OwnId:
    """A claimed id. It is held until `release`, or the end of the process."""

    def __init__(self, node_id: str, lock: int | None) -> None:
        self.node_id = node_id
        self._lock = lock  # file descriptor; None: nothing is held

    def release(self) -> None:
        """Let another agent have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """What the environment says of the GPUs that this process may see."""
    return [f"{name}={environ[name]}" for name in VISIBLE if name in environ]


def claim(node_id: str, environ: Mapping[str, str]) -> OwnId:
    """The first of `node_id`, `node_id-2`, ... that no other agent of this user here has."""
    folder = _folder(environ)
    for number in range(1, MOST + 1):
        wanted = node_id if number == 1 else f"{node_id[:60]}-{number}"
        try:
            lock = os.open(folder / f"{wanted}.lock", _FLAGS, 0o600)
        except OSError:
            break
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return OwnId(wanted, lock)
    return OwnId(node_id, None)


def _folder(environ: Mapping[str, str]) -> Path:
    base = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"batchyard-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return base / "not-there"
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022
    return folder if ours else base / "not-there"
