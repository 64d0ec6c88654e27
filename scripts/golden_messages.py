"""Serialise the golden messages: tests/golden/messages/**/*.txtpb into *.binpb beside them.

The text is written by hand and says what it is in its first line (`# proto-message: NAME`). The
bytes are what a peer of that day sent; they change only when a text changes, never because code
did, and the tests hold every later version to reading them alike.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message

from batchyard.v1 import admin_service_pb2, node_service_pb2, scheduler_service_pb2
from scripts.gen_protos import ROOT

MESSAGES = ROOT / "tests" / "golden" / "messages"
# Importing a module registers its messages; these three import all the others.
SERVICES = (admin_service_pb2, node_service_pb2, scheduler_service_pb2)
HEADER = "# proto-message: "


def texts() -> list[Path]:
    """Return every golden message in its text form."""
    return sorted(MESSAGES.rglob("*.txtpb"))


def empty_message(path: Path) -> Message:
    """Return an empty message of the type that the file's first line names."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    if not first.startswith(HEADER):
        raise SystemExit(f"{path.name}: the first line must be `{HEADER}batchyard.v1.NAME`")
    name = first.removeprefix(HEADER).strip()
    return message_factory.GetMessageClass(Default().FindMessageTypeByName(name))()


def parse_text(path: Path) -> Message:
    """Return the message that a text file describes."""
    return text_format.Parse(path.read_text(encoding="utf-8"), empty_message(path))


def encoded() -> Iterator[tuple[Path, bytes]]:
    """Yield each target file with the bytes that belong into it."""
    for path in texts():
        yield path.with_suffix(".binpb"), parse_text(path).SerializeToString(deterministic=True)


def main(arguments: list[str]) -> int:
    """Write the bytes, or with `--check` name the files that differ; return the exit status."""
    stale = [
        (path, data) for path, data in encoded() if not path.exists() or path.read_bytes() != data
    ]
    for path, data in stale:
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is stale: run `make gen`", file=sys.stderr)
        else:
            path.write_bytes(data)
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
