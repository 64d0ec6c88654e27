"""How is a recording read? Its head, then its steps, as far as they were written.

A process that was killed leaves a file without an end; what is there is read, and `Recording.end`
says so.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import Instant
from scheduler_service.policies import UnknownPolicyError
from scheduler_service.recording import codec, policies
from scheduler_service.recording.file import GZIP
from scheduler_service.recording.scheduler import FORMAT, VERSION, Heard

_CHUNK: Final = 1 << 16
# What comes of a document that is JSON, but not as it was written here.
_OTHER_SHAPE: Final = (KeyError, ValueError, TypeError, AttributeError)
CUT: Final = "cut off"  # the process was killed


class RecordingError(Exception):
    """The file is no recording that can be read; the message says why."""


@dataclass(slots=True)
class Step:
    """One step of the core."""

    number: int  # from 1
    at: Instant
    happened: list[ev.Event]
    heard: list[Heard]
    decisions: list[str]
    fault: str = ""  # the core failed in it: the exception's name
    anew: bool = False  # a fresh core took over before it


@dataclass
class Recording:
    """A file. `steps` can be run through any number of times; `end` is known after the first."""

    path: Path
    settings: CoreSettings
    head: dict[str, Any] = field(repr=False)
    end: str = CUT  # or "closed", or "full"

    def policies(self) -> PolicySet:
        """Those that were in force, fresh."""
        try:
            return policies.decode(self.head)
        except (UnknownPolicyError, codec.CodecError, *_OTHER_SHAPE) as fault:
            raise RecordingError(f"{self.path}: its policies cannot be made: {fault}") from fault

    def steps(self) -> Iterator[Step]:
        """All steps, in order.

        Raises:
            RecordingError: a line in the middle cannot be read.
        """
        lines = _documents(self.path)
        next(lines)
        number, anew = 0, False
        for line in lines:
            if isinstance(line, dict):
                self.end = line.get("end", self.end)
                anew = anew or bool(line.get("successor"))
                continue
            number += 1
            yield _step(self.path, number, line, anew=anew)
            anew = False


def read(path: Path) -> Recording:
    """Open a recording.

    Raises:
        RecordingError: it is none, or of a version that this one does not know.
    """
    head = next(_documents(path), None)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise RecordingError(
            f"{path} is no recording of a scheduler; `recording.file` in scheduler.yaml makes one"
        )
    if head.get("version") != VERSION:
        raise RecordingError(
            f"{path} is of version {head.get('version')}, this program reads {VERSION}"
        )
    try:
        settings = codec.decode(CoreSettings, head["settings"])
    except (codec.CodecError, *_OTHER_SHAPE) as fault:
        raise RecordingError(f"{path}: its settings cannot be read: {fault}") from fault
    return Recording(path, settings, head)


def _step(path: Path, number: int, line: Any, *, anew: bool) -> Step:
    try:
        at, happened, heard, decided = line
        events = [codec.decode_event(event) for event in happened]
        spoken = [(int(i), int(c), int(k), int(e)) for i, c, k, e in heard]
        if type(at) is not int:
            raise TypeError(f"its instant is {at!r}, and not in whole nanoseconds")
    except (TypeError, ValueError) as fault:
        raise RecordingError(f"{path}, step {number}: {fault}") from fault
    if isinstance(decided, dict):
        return Step(number, at, events, spoken, [], str(decided.get("fault")), anew)
    return Step(number, at, events, spoken, list(decided), "", anew)


def _documents(path: Path) -> Iterator[Any]:
    """One per line; a last one that is cut off is left out."""
    rest = b""
    for chunk in _plain(path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as fault:
                raise RecordingError(f"{path} holds a line that is no JSON: {fault}") from fault


def _plain(path: Path) -> Iterator[bytes]:
    unzip = zlib.decompressobj(GZIP)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield unzip.decompress(chunk)
    except OSError as fault:
        raise RecordingError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    except zlib.error as fault:
        raise RecordingError(f"{path} is no recording: it is not gzipped, or damaged") from fault
