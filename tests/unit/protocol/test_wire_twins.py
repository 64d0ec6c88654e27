"""Every packed message of batchyard.wire.v1 is, byte for byte, its namesake in batchyard.v1.

"Packed" in front of a name marks the twin. It may hold as `bytes`, or as another twin, what its
namesake holds as a message, and nothing else may differ.
"""

from __future__ import annotations

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message

from batchyard.v1 import scheduler_service_pb2 as public
from batchyard.wire.v1 import wire_pb2 as wire
from scripts.golden_messages import parse_text, texts
from tests.unit.protocol.corpus import submessages

TWINS = dict(wire.DESCRIPTOR.message_types_by_name)
# One twin serves both RPCs; `attach` is GenerateStream's.
NAMESAKES = {"PackedGenerateRequest": ("GenerateRequest", "GenerateStreamRequest")}


def namesakes(twin: str) -> list[Descriptor]:
    names = NAMESAKES.get(twin, (twin.removeprefix("Packed"),))
    return [Default().FindMessageTypeByName(f"batchyard.v1.{name}") for name in names]


def form(field: FieldDescriptor) -> tuple[object, ...]:
    """Return what must be equal whatever the type is."""
    oneof = field.containing_oneof.name if field.containing_oneof else None
    return field.name, field.is_repeated, oneof


def same_bytes(packed: FieldDescriptor, plain: FieldDescriptor) -> bool:
    """Say whether the two types are encoded alike."""
    if plain.message_type is None:
        kinds = [(f.type, f.enum_type, f.has_presence) for f in (packed, plain)]
        return kinds[0] == kinds[1]
    if packed.message_type is None:
        return packed.type == FieldDescriptor.TYPE_BYTES
    if plain.message_type.GetOptions().map_entry:
        pairs = zip(packed.message_type.fields, plain.message_type.fields, strict=True)
        return all(p.type == q.type for p, q in pairs)
    twin = TWINS.get(packed.message_type.name)
    return packed.message_type is plain.message_type or (
        twin is packed.message_type and plain.message_type in namesakes(twin.name)
    )


@pytest.mark.parametrize("twin", TWINS)
def test_twin_has_the_fields_of_its_namesakes(twin: str) -> None:
    packed = TWINS[twin].fields_by_number
    for namesake in namesakes(twin):
        for number, plain in namesake.fields_by_number.items():
            assert number in packed, f"{twin} lacks {plain.full_name}"
            assert form(packed[number]) == form(plain)
            assert same_bytes(packed[number], plain), f"{twin}: {plain.full_name} differs in type"
    known = {number for namesake in namesakes(twin) for number in namesake.fields_by_number}
    assert sorted(packed) == sorted(known), f"{twin} has fields that no namesake has"


@pytest.mark.parametrize("twin", TWINS)
def test_message_goes_through_its_twin_unchanged(twin: str) -> None:
    """Every golden message of the kind, whole or inside another one, makes the round trip."""
    kinds = namesakes(twin)
    parts = [part for path in texts() for part in submessages(parse_text(path))]
    of_this_kind = [part for part in parts if part.DESCRIPTOR in kinds]
    assert {part.DESCRIPTOR.name for part in of_this_kind} == {kind.name for kind in kinds}
    for plain in of_this_kind:
        assert through_twin(plain, TWINS[twin]) == plain


def through_twin(plain: Message, twin: Descriptor) -> Message:
    packed = message_factory.GetMessageClass(twin).FromString(plain.SerializeToString())
    return type(plain).FromString(packed.SerializeToString())


def test_bad_text_in_one_call_leaves_its_neighbours_readable() -> None:
    """Why there are twins: the public message is lost whole, the packed one only in part."""
    sent = public.MultiplexRequest()
    for call_id in (1, 2, 3):
        sent.calls.add(call_id=call_id).request.text.prompt = f"prompt {call_id}"
    spoilt = sent.SerializeToString().replace(b"prompt 2", b"prompt \xff")

    with pytest.raises(DecodeError):
        public.MultiplexRequest.FromString(spoilt)
    calls = wire.PackedMultiplexRequest.FromString(spoilt).calls
    assert [public.Call.FromString(calls[i]).call_id for i in (0, 2)] == [1, 3]
    assert wire.PackedCall.FromString(calls[1]).call_id == 2, "the bad call can still be answered"
