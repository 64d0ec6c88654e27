"""How would a file say what a configuration holds? Nested values, with their units.

Read again they give an equal configuration. What is None is left out where it is so by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from service_kit.units import write_duration, write_size


def plain(section: BaseModel, default: BaseModel | None = None) -> dict[str, Any]:
    """All keys of a section. `default`: what it is where nobody says anything."""
    found = {}
    for name, field in type(section).model_fields.items():
        value, usual = getattr(section, name), getattr(default, name, None)
        if value is not None or usual is not None:
            found[name] = _plain(as_written(field, value), usual)
    return found


def as_written(field: FieldInfo, value: Any) -> Any:
    """A length of time or a size as a text with its unit; anything else as it is."""
    readers = {_reader(m) for m in (*field.metadata, *_inner(field.annotation))}
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "duration_ns" in readers:
            return write_duration(int(value))
        if "duration_s" in readers:
            return write_duration(round(value * 1e9))
        if "size_bytes" in readers:
            return write_size(int(value))
    return value


def _plain(value: Any, usual: Any) -> Any:
    if isinstance(value, BaseModel):
        return plain(value, usual if isinstance(usual, BaseModel) else None)
    if isinstance(value, Mapping):
        known = usual if isinstance(usual, Mapping) else {}
        return {key: _plain(part, known.get(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, None) for part in value]
    return str(value) if isinstance(value, Path) else value


def _reader(metadata: Any) -> str:
    return metadata.func.__name__ if isinstance(metadata, BeforeValidator) else ""


def _inner(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return list(annotation.__metadata__)
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return [each for part in get_args(annotation) for each in _inner(part)]
    return []
