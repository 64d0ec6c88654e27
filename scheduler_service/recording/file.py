"""How does a recording get onto the disk? Lines of JSON, gzipped, into a private file with a bound.

The file is readable by its owner alone. What is in it can be read though the process was killed:
everything up to the last flush, and there is one at least every second of recorded time. When the
next line would not fit any more, or the disk refuses, the recording ends; the scheduler goes on.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

GZIP: Final = 31  # zlib's word for its format
FLUSH_BYTES: Final = 1 << 18  # of what is not compressed yet
FLUSH_NS: Final = 1_000_000_000
_ROOM: Final = 1024  # for the last line and the trailer
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":")
).encode

OnEnd = Callable[[str], None]


class RecordingFile:
    """Open for writing. A file that is there already is kept as FILE.1, and no further one."""

    def __init__(self, path: Path, *, max_bytes: int, on_end: OnEnd | None = None) -> None:
        """Raises OSError: it cannot be written there."""
        if path.exists():
            if not path.is_file():
                raise FileExistsError(
                    errno.EEXIST, "is no file but a folder or a device", str(path)
                )
            path.replace(path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._zip = zlib.compressobj(1, zlib.DEFLATED, GZIP)
        self._max = max_bytes
        self._on_end = on_end
        self._size = 0
        self._pending = 0  # bytes that went in since the last flush
        self._flushed_at = 0
        self.over = False

    def write(self, document: Any, now: int) -> None:
        """One line, at that instant."""
        if self.over:
            return
        line = _encode(document).encode() + b"\n"
        try:
            if self._size + self._pending + len(line) + _ROOM > self._max:
                self._flush(now)
                if self._size + len(line) + _ROOM > self._max:
                    self._end({"end": "full"}, f"it is full ({self._max} bytes)")
                    return
            self._put(self._zip.compress(line))
            self._pending += len(line)
            if self._pending >= FLUSH_BYTES or now - self._flushed_at >= FLUSH_NS:
                self._flush(now)
        except OSError as fault:
            self.stop(f"it cannot be written: {fault.strerror or fault}")

    def close(self) -> None:
        """The last line, for a recording that ended as it should."""
        if not self.over:
            try:
                self._end({"end": "closed"}, "")
            except OSError as fault:
                self.stop(f"it cannot be written: {fault.strerror or fault}")

    def stop(self, why: str) -> None:
        """Record no more; what is there stays."""
        if not self.over:
            self.over = True
            self._file.close()
            if self._on_end is not None:
                self._on_end(why)

    def _end(self, last: Any, why: str) -> None:
        self._put(self._zip.compress(json.dumps(last).encode() + b"\n"))
        self._put(self._zip.flush(zlib.Z_FINISH))
        self.over = True
        self._file.close()
        if why and self._on_end is not None:
            self._on_end(why)

    def _flush(self, now: int) -> None:
        self._put(self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._pending = 0
        self._flushed_at = now

    def _put(self, data: bytes) -> None:
        while data:
            count = self._file.write(data)
            self._size += count
            data = data[count:]
