"""Where in a message is it broken? For errors only: walks the wire format by the descriptor.

protobuf says no more than that a message does not parse. A caller wants the field: the walk finds
the first string that is no UTF-8, or the place where the bytes stop making sense.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Broken(Exception):
    """The bytes stop making sense here."""


def locate(descriptor: Any, data: bytes, *, prefix: str = "", depth: int = 0) -> str:
    """Path of the first fault ("text.prompt"), or `prefix` where only the whole is known bad."""
    position = 0
    seen: dict[str, int] = {}
    while position < len(data):
        try:
            number, kind, value, position = _field(data, position)
        except _Broken:
            return prefix.rstrip(".")
        field = descriptor.fields_by_number.get(number)
        if field is None or kind != _BYTES:
            continue
        name: str = field.name
        if field.is_repeated:
            index = seen.get(name, 0)
            seen[name] = index + 1
            name = f"{name}[{index}]"
        if field.type == FieldDescriptor.TYPE_STRING and not _is_utf8(value):
            return prefix + name
        if field.type == FieldDescriptor.TYPE_MESSAGE and depth < 100:
            found: str = locate(
                field.message_type, value, prefix=f"{prefix}{name}.", depth=depth + 1
            )
            if found != prefix.rstrip("."):
                return found
    return prefix.rstrip(".") if depth == 0 else _parent(prefix)


def number(data: bytes, field: int) -> int:
    """The last value of a varint field before the bytes stop making sense; 0: there is none."""
    position = found = 0
    try:
        while position < len(data):
            tag, after = _varint(data, position)
            if tag == field << 3:
                found, position = _varint(data, after)
            else:
                _, _, _, position = _field(data, position)
    except _Broken:
        pass
    return found


def _parent(prefix: str) -> str:
    """What `locate` of the enclosing message calls "nothing found in here"."""
    return prefix.rstrip(".").rpartition(".")[0]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _field(data: bytes, position: int) -> tuple[int, int, bytes, int]:
    """(number, wire type, payload of a length-delimited field, next position)."""
    tag, position = _varint(data, position)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
        _, position = _varint(data, position)
        return number, kind, b"", position
    if kind == _BYTES:
        length, position = _varint(data, position)
        end = position + length
        if end > len(data):
            raise _Broken
        return number, kind, data[position:end], end
    width = {_FIXED64: 8, _FIXED32: 4}.get(kind)
    if width is None or position + width > len(data) or number == 0:
        raise _Broken
    return number, kind, b"", position + width


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Broken
