"""Messages that are almost right: valid ones with a few things wrong, by a recipe of whole numbers.

A recipe is what Hypothesis draws and shrinks: which valid message to begin with, and which
mutations, each with two selectors that are taken modulo what there is to choose from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

WHOLE = [0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
SIGNED = [-1, -(2**31), -(2**63)]
FLOATS = [0.0, -1.0, 0.5, 1e308, -1e308, math.inf, -math.inf, math.nan, 5e-324]
TEXTS = ["", "n1", "n2", "e", "rogue", "m", "\x00", "é\U0001f600", "a" * 65, "x" * 5000, "[" * 100,
         "{}", '{"a":', "default", "../..", "%s%n", "c1", "00-0-0-00"]  # fmt: skip
BYTES = [b"", b"\x00", b"\xff" * 9, b"{" * 300, b"\x0a\x05", bytes(range(256))]
LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """`steps`: (mutation, where, what)."""

    begin: int
    steps: tuple[tuple[int, int, int], ...]


_BIG = st.integers(0, 999)
RECIPES = st.builds(
    Recipe, _BIG, st.lists(st.tuples(_BIG, _BIG, _BIG), max_size=4).map(tuple)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pantry:
    """What there is to cook from. `any_live` in a valid message stands for one of `live`: ids of
    attempts that are live now, whoever's they are.
    """

    valid: Sequence[Message]
    any_live: int
    live: Sequence[int]


def cook(recipe: Recipe, pantry: Pantry) -> bytes:
    """Return the bytes that a recipe makes of one of the valid messages."""
    valid = pantry.valid
    message = type(first := valid[recipe.begin % len(valid)])()
    message.CopyFrom(first)
    _name_live(message, recipe.begin, pantry)
    left: list[tuple[int, int, int]] = []
    for kind, where, what in recipe.steps:
        if kind % 10 < 7:
            _ON_MESSAGES[kind % len(_ON_MESSAGES)](message, where, what, pantry)
        else:
            left.append((kind, where, what))
    data = message.SerializeToString()
    for kind, where, what in left:
        data = _ON_BYTES[kind % len(_ON_BYTES)](data, where, what)
    return data


def _name_live(message: Message, selector: int, pantry: Pantry) -> None:
    if not pantry.live:
        return
    number = _choose(pantry.live, selector)
    for part in _parts(message):
        for field, value in part.ListFields():
            if field.cpp_type != FieldDescriptor.CPPTYPE_UINT64:
                continue
            if not _is_repeated(field) and value == pantry.any_live:
                setattr(part, field.name, number)
            elif _is_repeated(field):
                value[:] = [number if v == pantry.any_live else v for v in value]


def _parts(message: Message) -> Iterator[Message]:
    """The message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        for inner in value if _is_repeated(field) else (value,):
            yield from _parts(inner)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _choose(options: Sequence[Any], selector: int) -> Any:
    return options[selector % len(options)]


def _value(field: FieldDescriptor, what: int, live: Sequence[int]) -> Any:
    kind = field.cpp_type
    if kind in LIMITS:
        low, high = LIMITS[kind]
        return _choose([v for v in (*live, *WHOLE, *SIGNED) if low <= v <= high], what)
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        found = _choose(FLOATS, what)
        return min(max(found, -3e38), 3e38) if abs(found) == 1e308 else found
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return bool(what % 2)
    return _choose(BYTES if field.type == FieldDescriptor.TYPE_BYTES else TEXTS, what)


def _set(message: Message, where: int, what: int, pantry: Pantry) -> None:
    """Give a field a value from the edges of what it can hold, or add one."""
    part = _choose(list(_parts(message)), where)
    field = _choose(part.DESCRIPTOR.fields, what)
    held = getattr(part, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.message_type is not None:
        held.add() if _is_repeated(field) else held.SetInParent()
    elif _is_repeated(field):
        held.extend([_value(field, where + n, pantry.live) for n in range(1 + what % 3)])
    else:
        setattr(part, field.name, _value(field, where * 31 + what, pantry.live))


def _clear(message: Message, where: int, what: int, _: Pantry) -> None:
    part = _choose(list(_parts(message)), where)
    if part.ListFields():
        part.ClearField(_choose(part.ListFields(), what)[0].name)


def _repeat(message: Message, where: int, what: int, _: Pantry) -> None:
    """Elements again and again, so that columns differ in length and ids occur twice."""
    part = _choose(list(_parts(message)), where)
    lists = [
        field
        for field, _value in part.ListFields()
        if _is_repeated(field)
        and not (field.message_type and field.message_type.GetOptions().map_entry)
    ]
    if lists:
        held = getattr(part, _choose(lists, what).name)
        held.MergeFrom([held[what % len(held)]] * (1 + what % 40))


def _splice(message: Message, _where: int, what: int, pantry: Pantry) -> None:
    """Two messages in one: what comes first, comes again, with what comes later."""
    message.MergeFrom(_choose(pantry.valid, what))


def _flip(data: bytes, where: int, what: int) -> bytes:
    if not data:
        return b"\xff"
    at = where * 7919 % len(data)
    return data[:at] + bytes([data[at] ^ (1 << what % 8)]) + data[at + 1 :]


def _truncate(data: bytes, where: int, _what: int) -> bytes:
    return data[: where * 7919 % (len(data) + 1)]


def _random(data: bytes, where: int, what: int) -> bytes:
    """Other bytes altogether, or some put in."""
    noise = hashlib.sha256(f"{where} {what}".encode()).digest() * (1 + what % 5)
    if where % 2:
        return noise
    at = what * 7919 % (len(data) + 1)
    return data[:at] + noise + data[at:]


def _double(data: bytes, _where: int, _what: int) -> bytes:
    return data + data


_ON_MESSAGES: list[Callable[[Message, int, int, Pantry], None]] = [
    _set, _set, _set, _clear, _repeat, _splice,
]  # fmt: skip
_ON_BYTES: list[Callable[[bytes, int, int], bytes]] = [_flip, _truncate, _random, _double]
