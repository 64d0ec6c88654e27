"""Fields that are written by hand are what the parser reads."""

from __future__ import annotations

import pytest

from batchyard.wire.v1 import wire_pb2
from service_kit.wire_write import field, tag, varint


@pytest.mark.parametrize("length", [0, 1, 127, 128, 1023, 1024, 16_383, 16_384, 3_000_000])
def test_field_of_any_length_is_read_back(length: int) -> None:
    data = b"x" * length
    written = field(tag(wire_pb2.PackedCall.REQUEST_FIELD_NUMBER), data) + varint(1 << 3) + b"\x05"
    assert wire_pb2.PackedCall.FromString(written) == wire_pb2.PackedCall(call_id=5, request=data)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 40) + 7, (1 << 64) - 1])
def test_whole_number_is_read_back(value: int) -> None:
    written = bytes([1 << 3]) + varint(value)
    assert wire_pb2.PackedCall.FromString(written).call_id == value
