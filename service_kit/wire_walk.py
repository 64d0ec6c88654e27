"""Where in a serialized message is the fault that the parser only says yes or no to?

A walk over the wire format, along a message's descriptor. It runs only after a parse has failed, so
it may be slow; it finds the first bad UTF-8 string, cut or malformed field, or too deep nesting,
and salvages the plain numbers (an id, a charge) that still can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

MAX_DEPTH = 100  # the parser's own limit
MAX_FIELDS = 5_000  # that are looked at (10 ms); a fault behind them is not located

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """The bytes are no message from here on."""


class _TooMany(Exception):
    """Looking further would hold up everybody else."""


def numbers(data: bytes) -> dict[int, int]:
    """The varint fields that can be read before the first fault, by field number."""
    found: dict[int, int] = {}
    try:
        for number, wire_type, value in islice(_fields(data), MAX_FIELDS):
            if wire_type == VARINT:
                found[number] = int(value)
    except Malformed:
        pass
    return found


def embedded(data: bytes, field_number: int) -> bytes:
    """The last embedded message of that number before the first fault; else empty."""
    found = b""
    try:
        for number, wire_type, value in islice(_fields(data), MAX_FIELDS):
            if number == field_number and wire_type == BYTES:
                found = bytes(value)
    except Malformed:
        pass
    return found


def locate(data: bytes, message_type: type[Message]) -> str:
    """The path of the first faulty field, like `chat.messages[2].name`.

    Of a field that is cut or malformed itself, the path of the message that holds it. Empty: that
    is the whole, or nothing is wrong, or the fault is behind very many fields.
    """
    try:
        where = _locate(data, cast(Descriptor, message_type.DESCRIPTOR), 0, count(1))
    except _TooMany:
        return ""
    return where or ""


def _locate(data: bytes, descriptor: Descriptor, depth: int, seen: Iterator[int]) -> str | None:
    """Empty: the message as a whole is bad. None: it is sound."""
    if depth > MAX_DEPTH:
        return ""
    counts: dict[int, int] = {}
    try:
        for number, wire_type, value in _fields(data):
            if next(seen) > MAX_FIELDS:
                raise _TooMany
            field = descriptor.fields_by_number.get(number)
            if field is None or wire_type != BYTES:
                continue
            inner = _fault_in(value, field, depth, seen)
            index = counts.get(number, 0)
            counts[number] = index + 1
            if inner is not None:
                name = f"{field.name}[{index}]" if _is_list(field) else field.name
                return f"{name}.{inner}" if inner else name
    except Malformed:
        return ""
    return None


def _fault_in(value: bytes, field: FieldDescriptor, depth: int, seen: Iterator[int]) -> str | None:
    """Empty: the field itself is bad. None: it is sound."""
    if field.type == FieldDescriptor.TYPE_STRING:
        try:
            value.decode()
        except UnicodeDecodeError:
            return ""
        return None
    if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
        return _locate(value, field.message_type, depth + 1, seen)
    return None


def _is_list(field: Any) -> bool:
    return bool(field.is_repeated)


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, at = _varint(data, at)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            size, at = _varint(data, at)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise Malformed
        if not number or at + size > len(data):
            raise Malformed
        yield number, wire_type, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise Malformed
