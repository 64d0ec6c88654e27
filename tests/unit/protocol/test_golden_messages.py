"""Bytes that peers of an earlier day sent are still read alike, and nothing in them is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message

from scripts.golden_messages import MESSAGES, empty_message, encoded, parse_text, texts
from tests.unit.protocol.corpus import submessages

FILES = ("types", "inference", "node_service", "report", "scheduler_service", "admin_service")
ENVELOPES = ("Request", "Response")  # of an RPC; those that matter have a file of their own
UNKNOWN = b"\xca\xb5\x18\x07unknown"  # field 49,999, length-delimited

golden = pytest.mark.parametrize("path", texts(), ids=lambda p: str(p.relative_to(MESSAGES)))


def read(path: Path) -> Message:
    parsed = empty_message(path)
    parsed.ParseFromString(path.with_suffix(".binpb").read_bytes())
    return parsed


@golden
def test_bytes_are_read_as_the_text_says(path: Path) -> None:
    assert read(path) == parse_text(path)


@golden
def test_bytes_are_written_as_before(path: Path) -> None:
    before = path.with_suffix(".binpb").read_bytes()
    assert read(path).SerializeToString(deterministic=True) == before


@golden
def test_unknown_fields_survive(path: Path) -> None:
    """A newer peer's fields travel through, also deep inside."""
    message = read(path)
    known = message.ByteSize()
    nested = list(submessages(message))
    for sub in nested:
        sub.MergeFromString(UNKNOWN)
    again = type(message).FromString(message.SerializeToString())
    assert again.SerializeToString(deterministic=True).count(UNKNOWN) == len(nested)
    for sub in submessages(again):
        sub.DiscardUnknownFields()
    assert again.ByteSize() == known
    assert again == read(path)


def test_every_file_is_committed() -> None:
    committed = set(MESSAGES.rglob("*.binpb"))
    assert committed == {path for path, _ in encoded()}, "run `make gen`"


def test_corpus_covers_every_field() -> None:
    """Every field of every message but the plain envelopes is set somewhere, so all oneofs are."""
    messages = [parse_text(path) for path in texts()]
    roots = {message.DESCRIPTOR.full_name for message in messages}
    parts = (part for message in messages for part in submessages(message))
    seen = {field.full_name for part in parts for field, _ in part.ListFields()}
    wanted = {
        field.full_name
        for descriptor in declared()
        if not descriptor.name.endswith(ENVELOPES) or descriptor.full_name in roots
        for field in descriptor.fields
    }
    assert sorted(wanted - seen) == []


def declared() -> Iterator[Descriptor]:
    for name in FILES:
        yield from (
            Default().FindFileByName(f"batchyard/v1/{name}.proto").message_types_by_name.values()
        )
