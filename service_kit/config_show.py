"""What is in force, and where does each value come from? A line per value, as in the file.

Lengths of time and sizes are written with their units. What may be a secret is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from service_kit.config_plain import as_written

_SECRET: Final = re.compile(r"(^|_)(secret|password|api_key|token)$")


def show(config: BaseModel, origins: Mapping[str, str]) -> Iterator[str]:
    """Tab-separated: path, value as YAML, origin ("default" where nobody said it)."""
    for path, text in _rows(config, ""):
        yield f"{path}\t{text}\t{_origin(path, origins)}"


def tell(config: BaseModel, origins: Mapping[str, str]) -> int:
    """For `--show-config`: print them. Return 0."""
    print("\n".join(show(config, origins)))
    return 0


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """Of the value, or of what it is part of; what is beside it says nothing."""
    found = origins.get(path)
    while found is None and "[" in path:
        path = path[: path.rindex("[")]
        found = origins.get(path)
    return found or "default"


def _rows(model: BaseModel, prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in type(model).model_fields.items():
        value, path = getattr(model, name), f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _rows(value, f"{path}.")
        elif isinstance(value, Mapping) and _holds_models(value.values()):
            for key, inner in value.items():
                yield from _rows(inner, f"{path}.{key}.")
        elif isinstance(value, tuple) and value and _holds_models(value):
            for index, inner in enumerate(value):
                yield from _rows(inner, f"{path}[{index}].")
        else:
            yield path, _text(name, field, value)
    for name, value in (model.model_extra or {}).items():
        yield f"{prefix}{name}", _plain(name, value)


def _holds_models(values: Any) -> bool:
    return all(isinstance(value, BaseModel) for value in values)


def _text(name: str, field: FieldInfo, value: Any) -> str:
    written = as_written(field, value)
    return written if written is not value else _plain(name, value)


def _plain(name: str, value: Any) -> str:
    if isinstance(value, str) and value and _SECRET.search(name):
        return '"***"'
    return json.dumps(value, ensure_ascii=False, default=_other)


def _other(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value) if isinstance(value, Path) else list(value)
