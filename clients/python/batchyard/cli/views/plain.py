"""A protobuf message as a plain document, by rules that hold for every field.

- Keys are the field names. A Duration `x` becomes `x_ms`, a number of milliseconds; a Timestamp
  becomes RFC 3339 text in UTC; bytes become base64 text.
- An enum value becomes its name without the prefix, in lower case; the unspecified value null, an
  unknown one `unknown_N`. Reasons of errors keep their upper case (`NODE_LOST`), as in ErrorInfo.
- What is absent is null; repeated fields and maps are always there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

Document = dict[str, Any]
_DURATION = Duration.DESCRIPTOR.full_name
_TIMESTAMP = Timestamp.DESCRIPTOR.full_name
_UPPER_CASE_ENUMS = {"ErrorReason"}
# Descriptors are typed `Any`: their stubs differ between the releases of protobuf that are allowed.


def plain(message: Message) -> Document:
    """The document of `message`, keys in the order of its fields."""
    return dict(_pairs(message))


def _pairs(message: Message) -> Iterator[tuple[str, Any]]:
    for field in message.DESCRIPTOR.fields:
        suffix = "_ms" if _is_message(field, _DURATION) else ""
        yield field.name + suffix, _field(message, field)


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        return {str(key): _value(value_field, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if _is_message(field, _DURATION):
            return ms(value)
        return rfc3339(value) if _is_message(field, _TIMESTAMP) else plain(value)
    if field.enum_type is not None:
        return enum_word(field.enum_type, value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float):
        return round(value, 6)
    return value


def _is_message(field: Any, full_name: str) -> bool:
    return field.message_type is not None and field.message_type.full_name == full_name


def enum_word(enum: EnumDescriptor, number: int) -> str | None:
    """The short name of an enum value."""
    known = enum.values_by_number.get(number)
    if known is None:
        return f"unknown_{number}"
    if number == 0:
        return None
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    word = known.name.removeprefix(prefix)
    return word if enum.name in _UPPER_CASE_ENUMS else word.lower()


def ms(duration: Duration) -> float:
    """Milliseconds, exact to the microsecond; whole numbers without a fraction."""
    value = round(duration.seconds * 1000 + duration.nanos / 1e6, 3)
    return int(value) if value == int(value) else value


def rfc3339(timestamp: Timestamp) -> str:
    """UTC with milliseconds: 2026-01-31T12:00:00.250Z."""
    return timestamp.ToDatetime().isoformat(timespec="milliseconds") + "Z"
