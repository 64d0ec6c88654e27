"""Walks over messages that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message


def submessages(message: Message) -> Iterator[Message]:
    """Yield the message and every message of batchyard.v1 inside it."""
    yield message
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is None or kind.GetOptions().map_entry or kind.file.package != "batchyard.v1":
            continue
        for part in value if field.is_repeated else [value]:
            yield from submessages(part)
