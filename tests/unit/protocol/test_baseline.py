"""What old peers rely on stays; the comparison that says so is itself tried on broken protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from scripts.protocol_baseline import BASELINE, PACKAGE, breaks, current

BASE = FileDescriptorSet.FromString(BASELINE.read_bytes())


def public(files: FileDescriptorSet, kind: str, name: str):
    """Return the message, enum or service of that name."""
    return next(
        x for f in files.file if f.package == PACKAGE for x in getattr(f, kind) if x.name == name
    )


def field(files: FileDescriptorSet, path: str) -> FieldDescriptorProto:
    of, _, name = path.partition(".")
    return next(f for f in public(files, "message_type", of).field if f.name == name)


def part(files: FileDescriptorSet, kind: str, of: str, name: str):
    """Return a value of an enum or an rpc of a service."""
    parts = "value" if kind == "enum_type" else "method"
    return next(x for x in getattr(public(files, kind, of), parts) if x.name == name)


def remove(files: FileDescriptorSet, path: str) -> None:
    public(files, "message_type", path.partition(".")[0]).field.remove(field(files, path))


def change(path: str, **attributes: object) -> Callable[[FileDescriptorSet], None]:
    def mutate(files: FileDescriptorSet) -> None:
        target = field(files, path)
        for name, value in attributes.items():
            setattr(target, name, value)

    return mutate


BREAKS: dict[str, tuple[Callable[[FileDescriptorSet], None], str]] = {
    "removed field": (lambda f: remove(f, "Credit.engine_id"), "Credit = 1: `string engine_id"),
    "renumbered field": (change("Credit.engine_id", number=9), "field batchyard.v1.Credit = 1"),
    "reused number": (
        change("Credit.engine_id", name="slots", json_name="slots"),
        "was `string engine_id (json engineId)` and is `string slots (json slots)`",
    ),
    "other scalar type": (
        change("Credit.total_inputs", type=FieldDescriptorProto.TYPE_SINT64),
        "was `uint64 total_inputs (json totalInputs)` and is `sint64",
    ),
    "other message type": (
        change("Call.request", type_name=".batchyard.v1.Call"),
        "field batchyard.v1.Call = 2",
    ),
    "became repeated": (
        change("Credit.total_inputs", label=FieldDescriptorProto.LABEL_REPEATED),
        "is `repeated uint64 total_inputs",
    ),
    "lost presence": (change("Credit.total_tokens", proto3_optional=False), "was `optional uint64"),
    "left its oneof": (
        lambda f: field(f, "InferenceRequest.text").ClearField("oneof_index"),
        "was `.batchyard.v1.TextInput text in oneof input",
    ),
    "renumbered enum value": (
        lambda f: setattr(part(f, "enum_type", "ErrorReason", "ERROR_REASON_SHED"), "number", 99),
        "value batchyard.v1.ErrorReason = 21: `ERROR_REASON_SHED` is gone",
    ),
    "removed rpc": (
        lambda f: setattr(part(f, "service", "SchedulerService", "Generate"), "name", "Gone"),
        "rpc SchedulerService.Generate",
    ),
    "rpc became streaming": (
        lambda f: setattr(
            part(f, "service", "SchedulerService", "Generate"), "server_streaming", True
        ),
        "returns (stream .batchyard.v1.GenerateResponse)",
    ),
    "removed message": (
        lambda f: setattr(public(f, "message_type", "Ping"), "name", "Pinged"),
        "message batchyard.v1.Ping: `message` is gone",
    ),
}


def test_nothing_that_was_promised_is_broken() -> None:
    assert breaks(BASE, current()) == []


def test_all_that_exists_is_promised() -> None:
    encoded = current().SerializeToString(deterministic=True)
    assert encoded == BASELINE.read_bytes(), "run `make gen` and commit tests/golden/protocol.binpb"


@pytest.mark.parametrize("name", BREAKS)
def test_break_is_found(name: str) -> None:
    mutate, expected = BREAKS[name]
    broken = FileDescriptorSet()
    broken.CopyFrom(BASE)
    mutate(broken)
    assert expected in "\n".join(breaks(BASE, broken))


def test_additions_are_allowed() -> None:
    grown = FileDescriptorSet()
    grown.CopyFrom(BASE)
    credit = public(grown, "message_type", "Credit")
    credit.field.add(name="added", json_name="added", number=9, type=FieldDescriptorProto.TYPE_BOOL)
    public(grown, "enum_type", "ErrorReason").value.add(name="ERROR_REASON_NEW", number=99)
    request = public(grown, "message_type", "InferenceRequest")
    request.field.add(name="video", json_name="video", number=23, oneof_index=0)
    assert breaks(BASE, grown) == []


def test_reserved_number_may_not_be_freed() -> None:
    reserving = FileDescriptorSet()
    reserving.CopyFrom(BASE)
    public(reserving, "message_type", "Credit").reserved_range.add(start=4, end=5)
    assert breaks(reserving, BASE) == ["reserved batchyard.v1.Credit = 4..4: `reserved` is gone"]
