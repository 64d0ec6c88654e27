"""Hold the protocol against its committed baseline: what was promised on the wire stays.

tests/golden/protocol.binpb is a serialised FileDescriptorSet of protos/batchyard/v1 (the private
batchyard.wire is promised to nobody). Additions are welcome: `make gen` writes them into the
baseline, from when on they are promises too. What an old peer would misread is refused.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

from scripts.gen_protos import ROOT, run_protoc, sources

BASELINE = ROOT / "tests" / "golden" / "protocol.binpb"
PACKAGE = "batchyard.v1"

Promise = tuple[str, str]  # what is promised, and its form


def current() -> FileDescriptorSet:
    """Return the descriptors of the public protocol and of all that it imports."""
    public = [source for source in sources() if source.startswith(PACKAGE.replace(".", "/"))]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "protocol.binpb"
        run_protoc(f"--descriptor_set_out={target}", "--include_imports", *public)
        return FileDescriptorSet.FromString(target.read_bytes())


def breaks(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """Return what a peer that speaks `old` would misread of `new`, one line each."""
    kept = dict(_promises(new))
    return [
        f"{what} was `{form}` and is `{kept[what]}`"
        if what in kept
        else f"{what}: `{form}` is gone"
        for what, form in _promises(old)
        if kept.get(what) != form
    ]


def _promises(files: FileDescriptorSet) -> Iterator[Promise]:
    for file in files.file:
        if file.package != PACKAGE:
            continue
        for message in file.message_type:
            yield from _message(f"{file.package}.{message.name}", message)
        for enum in file.enum_type:
            yield from _enum(f"{file.package}.{enum.name}", enum)
        for service in file.service:
            for rpc in service.method:
                asks = f"{'stream ' * rpc.client_streaming}{rpc.input_type}"
                answers = f"{'stream ' * rpc.server_streaming}{rpc.output_type}"
                yield f"rpc {service.name}.{rpc.name}", f"({asks}) returns ({answers})"


def _message(name: str, message: DescriptorProto) -> Iterator[Promise]:
    yield f"message {name}", "message"
    for field in message.field:
        yield f"field {name} = {field.number}", _field(field, message)
    for span in message.reserved_range:
        yield f"reserved {name} = {span.start}..{span.end - 1}", "reserved"
    for nested in message.nested_type:
        yield from _message(f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        yield from _enum(f"{name}.{enum.name}", enum)


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """Return all that a peer or generated code relies on: `optional uint32 n (json n)`."""
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    label = "optional " if field.proto3_optional else ""
    one_of = ""
    if field.HasField("oneof_index") and not field.proto3_optional:
        one_of = f" in oneof {message.oneof_decl[field.oneof_index].name}"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        label = "repeated "
    return f"{label}{field.type_name or scalar} {field.name}{one_of} (json {field.json_name})"


def _enum(name: str, enum: EnumDescriptorProto) -> Iterator[Promise]:
    for value in enum.value:
        yield f"value {name} = {value.number}", value.name


def main(arguments: list[str]) -> int:
    """Write the baseline, or with `--check` only compare; refuse a break in both."""
    new = current()
    encoded = new.SerializeToString(deterministic=True)
    committed = BASELINE.read_bytes() if BASELINE.exists() else None
    if committed is not None:
        broken = breaks(FileDescriptorSet.FromString(committed), new)
        for line in broken:
            print(f"breaks the protocol: {line}", file=sys.stderr)
        if broken:
            print("protos/README.md says how to evolve it", file=sys.stderr)
            return 1
    if encoded == committed:
        return 0
    if arguments == ["--check"]:
        print(f"{BASELINE.name} lacks additions: run `make gen` and commit it", file=sys.stderr)
        return 1
    BASELINE.parent.mkdir(parents=True, exist_ok=True)
    BASELINE.write_bytes(encoded)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
