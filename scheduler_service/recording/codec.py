"""How do events and settings become JSON and come back? By their annotated types.

A dataclass becomes an object, an enum its name, a tuple a list; of events the fields that differ
from their defaults, of settings and policies all, for defaults change between versions. A new event
or field needs no word here. What a caller wrote or a model said never
gets in: texts and payloads are left out, serialised parameters (stop words, schemas) become a
digest, which is enough as they are only compared.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import (
    AutoscaleSettings,
    FailoverSettings,
    HealthSettings,
    QueueSettings,
)
from scheduler_service.core.types import Request, Traits

# Fields that are not written: free text, payloads, and what the edge keeps for itself.
LEFT_OUT: Final[Mapping[type, frozenset[str]]] = {
    ev.ItemEnd: frozenset({"message", "payload", "metadata"}),
    ev.RequestsCancelled: frozenset({"message"}),
    ev.NodeCordoned: frozenset({"reason"}),
    ev.DrainRequested: frozenset({"reason"}),
    ev.ScaleFailed: frozenset({"message"}),
    ev.PoolPaused: frozenset({"reason"}),
    ev.AutoscaleFrozen: frozenset({"reason"}),
    ev.SchedulerDraining: frozenset({"reason"}),
    Request: frozenset({"context", "trace_id"}),
}
# Written with their defaults wherever they stand.
_WHOLE: Final = (AutoscaleSettings, FailoverSettings, HealthSettings, QueueSettings)
# Fields without a default that are left out come back as this.
_BLANK: Final = ""
# Of a request only what the edge states of it; from this field on it is the core's own.
_REQUEST_ENDS: Final = "state"
_NAMES: Final = {kind.__name__: kind for kind in typing.get_args(ev.Event)}

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
_OBJECTS: Final[dict[tuple[type, bool], tuple[Encode, Decode]]] = {}


class CodecError(ValueError):
    """A value cannot be read; the message says what was expected."""


def encode_event(event: ev.Event) -> list[Any]:
    """[name, fields]."""
    kind = type(event)
    return [kind.__name__, _object(kind, whole=False)[0](event)]


def decode_event(given: Any) -> ev.Event:
    """The event of `encode_event`.

    Raises:
        CodecError: it is none that this version knows.
    """
    try:
        name, fields = given
        kind = _NAMES[name]
    except (TypeError, ValueError, KeyError):
        raise CodecError(f"{given!r:.80} is no event that this version knows") from None
    event: ev.Event = decode(kind, fields)
    return event


def encode(value: Any) -> Any:
    """A dataclass as JSON, with all its fields."""
    return _object(type(value), whole=True)[0](value)


def decode(kind: type[Any], given: Any) -> Any:
    """A dataclass of that type from `encode`.

    Raises:
        CodecError: it is none.
    """
    try:
        return _object(kind, whole=True)[1](given)
    except (TypeError, ValueError, KeyError, AttributeError) as fault:
        raise CodecError(f"no {kind.__name__} of this version: {fault}") from fault


def _object(kind: type[Any], *, whole: bool) -> tuple[Encode, Decode]:
    """Both ways for a dataclass, made once. `whole`: defaults are written, too."""
    key = kind, whole
    if key not in _OBJECTS:
        _OBJECTS[key] = _make(kind, whole=whole)
    return _OBJECTS[key]


def _make(kind: type[Any], *, whole: bool) -> tuple[Encode, Decode]:
    fields = written(kind)
    ways = {field.name: _ways(_hint(kind, field), whole=whole) for field in fields}
    if kind is Traits:
        ways["params"] = (_digest, bytes.fromhex)
    plan = [(field.name, _default(field), ways[field.name][0]) for field in fields]
    read = {name: way[1] for name, way in ways.items()}
    blank = {
        field.name: _BLANK
        for field in dataclasses.fields(kind)
        if field.name in LEFT_OUT.get(kind, ()) and _default(field) is dataclasses.MISSING
    }

    def forth(value: Any) -> dict[str, Any]:
        found = {}
        for name, default, way in plan:
            given = getattr(value, name)
            if whole or given != default:
                found[name] = way(given)
        return found

    def back(given: Any) -> Any:
        return kind(**blank, **{name: read[name](part) for name, part in given.items()})

    return forth, back


def written(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that are recorded."""
    left_out = LEFT_OUT.get(kind, frozenset())
    fields = [field for field in dataclasses.fields(kind) if field.init]
    if kind is Request:
        names = [field.name for field in fields]
        fields = fields[: names.index(_REQUEST_ENDS)]
    return [field for field in fields if field.name not in left_out]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _hint(kind: type[Any], field: dataclasses.Field[Any]) -> Any:
    """The type of one field; others of the class may name what exists for type checkers only."""
    if isinstance(field.type, str):
        return eval(field.type, vars(sys.modules[kind.__module__]))
    return field.type


def _digest(params: bytes) -> str:
    return blake2b(params, digest_size=8).hexdigest()


def _same(value: Any) -> Any:
    return value


def _ways(hint: Any, *, whole: bool) -> tuple[Encode, Decode]:
    """Both ways for a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _optional(*_ways(next(a for a in arguments if a is not type(None)), whole=whole))
    if origin in (list, tuple, frozenset):
        return _many(origin, arguments, whole=whole)
    if origin is not None and issubclass(origin, Mapping):
        forth, back = _ways(arguments[1], whole=whole)
        return (
            lambda value: {key: forth(part) for key, part in value.items()},
            lambda given: {key: back(part) for key, part in given.items()},
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (lambda value: value.name), hint.__getitem__
    if hint is PolicySet:
        from scheduler_service.recording import policies  # here, as it is built on this module

        return policies.encode, policies.decode
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _object(hint, whole=whole or hint in _WHOLE)
    if hint in (int, float, str, bool):
        return _same, _same
    if hint is bytes:
        return bytes.hex, bytes.fromhex
    raise TypeError(f"nothing is known of how to write {hint!r}")


def _optional(forth: Encode, back: Decode) -> tuple[Encode, Decode]:
    return (
        lambda value: None if value is None else forth(value),
        lambda given: None if given is None else back(given),
    )


def _many(origin: type[Any], arguments: tuple[Any, ...], *, whole: bool) -> tuple[Encode, Decode]:
    if origin is tuple and arguments[-1] is not Ellipsis:
        pairs = [_ways(argument, whole=whole) for argument in arguments]
        return (
            lambda value: [way[0](part) for way, part in zip(pairs, value, strict=True)],
            lambda given: tuple(way[1](part) for way, part in zip(pairs, given, strict=True)),
        )
    forth, back = _ways(arguments[0], whole=whole)
    order: Callable[[Any], Any] = sorted if origin is frozenset else iter
    return (
        lambda value: [forth(part) for part in order(value)],
        lambda given: origin(back(part) for part in given),
    )
