"""Where a message that does not parse is broken, and what can still be read of it."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import types_pb2 as types
from service_kit import wire_walk


def chat() -> inference.InferenceRequest:
    part = inference.ContentPart(text="SPOIL")
    messages = [
        inference.ChatMessage(role="system"),
        inference.ChatMessage(role="user", parts=[inference.ContentPart(text="ok"), part]),
    ]
    return inference.InferenceRequest(chat=inference.ChatInput(messages=messages))


def test_a_bad_string_deep_inside_is_located() -> None:
    """Behaviour of hostile input: the error names the field, as far as it can be located."""
    data = chat().SerializeToString().replace(b"SPOIL", b"SP\xffIL")
    path = wire_walk.locate(data, inference.InferenceRequest)
    assert path == "chat.messages[1].parts[1].text"


def test_a_message_that_is_cut_off_is_named_not_the_field_in_it() -> None:
    whole = chat().SerializeToString()
    assert wire_walk.locate(whole[:-2], inference.InferenceRequest) == ""
    part = b"\x0a\x7fshort"  # a field of 127 bytes that has five
    tag = _varint(inference.InferenceRequest.CHAT_FIELD_NUMBER << 3 | wire_walk.BYTES)
    broken = tag + _varint(len(part)) + part
    assert wire_walk.locate(broken, inference.InferenceRequest) == "chat"


def test_numbers_before_the_fault_are_salvaged() -> None:
    data = b"\x08\x07\x10\x09\x0a\x03\x08\x05\x10\x12\x7f"
    assert wire_walk.numbers(data) == {1: 7, 2: 9}
    assert wire_walk.embedded(data, 1) == b"\x08\x05\x10"
    assert wire_walk.numbers(wire_walk.embedded(data, 1)) == {1: 5}
    assert wire_walk.embedded(data, 3) == b""


def test_fault_behind_very_many_fields_is_not_located() -> None:
    """To walk through four million of them would take seconds in which nobody is served."""
    fault = b"\x12\x01\xff"  # model
    for count, path in ((4_998, "model"), (5_000, "")):
        data = b"\x1a\x00" * count + fault
        assert wire_walk.locate(data, inference.InferenceRequest) == path
    labels = inference.InferenceRequest(labels={"k": "v"}).SerializeToString() * 2_500
    assert wire_walk.locate(labels + fault, inference.InferenceRequest) == ""
    assert wire_walk.numbers(b"\x08\x01" * 5_000 + b"\x10\x01") == {1: 1}
    assert wire_walk.embedded(b"\x08\x01" * 5_000 + fault, 2) == b""


def test_nesting_beyond_the_parsers_limit_is_located_and_ends() -> None:
    deep = Value(string_value="x")
    data = deep.SerializeToString()
    for _ in range(75):  # a value in a list in a value in a list ...
        data = b"\x0a" + _varint(len(data)) + data
        data = b"\x32" + _varint(len(data)) + data
    with pytest.raises(DecodeError):
        Value.FromString(data)
    path = wire_walk.locate(data, Value)
    assert path.startswith("list_value.values[0].list_value.")
    assert wire_walk.locate(ListValue(values=[deep]).SerializeToString(), ListValue) == ""


def test_nesting_beyond_the_parsers_limit_ends() -> None:
    data = b""
    for _ in range(150):  # field 1 in field 1 in field 1 ...
        data = b"\x0a" + _varint(len(data)) + data
    assert wire_walk.locate(data, types.Timings) is not None


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


@given(st.data())
def test_a_sound_message_has_no_fault_and_a_spoilt_one_has_its_path(data: st.DataObject) -> None:
    sound = chat().SerializeToString()
    assert wire_walk.locate(sound, inference.InferenceRequest) == ""
    index = data.draw(st.integers(0, len(sound) - 1))
    spoilt = sound[:index] + b"\xff" + sound[index + 1 :]
    wire_walk.locate(spoilt, inference.InferenceRequest)  # finds a path or none, but ends
