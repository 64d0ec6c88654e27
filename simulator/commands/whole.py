"""How does a file appear whole or not at all? It is written beside its place, as FILE.part.

What is interrupted, or cannot be written to its end, leaves what was there before; FILE.part itself
stays only where the process was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scheduler_service.recording.file import RecordingFile
from scheduler_service.recording.reader import RecordingError

RECORDING_BYTES: Final = 4 << 30


def write(path: Path, text: str) -> None:
    """The text, as the file's whole content. Devices and pipes take it as it comes.

    Raises:
        OSError: it cannot be written.
    """
    through = path.exists() and not path.is_file()
    part = path if through else _beside(path)
    try:
        part.write_text(text, encoding="utf-8")
        if not through:
            part.replace(path)
    except BaseException as fault:
        if not through:
            part.unlink(missing_ok=True)
        if isinstance(fault, OSError):
            fault.filename = str(path)
        raise


@contextlib.contextmanager
def recording(path: Path | None) -> Iterator[RecordingFile | None]:
    """Record into that file; None: do not. What was recorded there before is kept as FILE.1.

    Raises:
        OSError: it cannot be written there.
        RecordingError: it is full, or cannot be written on.
    """
    if path is None:
        yield None
        return
    part = _beside(path)
    part.unlink(missing_ok=True)
    ended: list[str] = []
    file = RecordingFile(part, max_bytes=RECORDING_BYTES, on_end=ended.append)
    try:
        yield file
        file.close()
        if ended:
            raise RecordingError(f"--record {path}: {ended[0]}; nothing was kept")
        if path.exists():
            path.replace(path.with_name(path.name + ".1"))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".part")
