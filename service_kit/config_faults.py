"""How is a fault of a configured value told? By its path, what was written, and what is meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Loc = Sequence[int | str]  # of a value, as pydantic gives it
_SHOWN = 64  # characters of a wrong text
# Where pydantic's words are about classes.
_OWN_WORDS = {
    "model_type": "should be a section: keys and their values",
    "dict_type": "should be a section: names and their values",
}
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something contradicts. The first path is the one to change; all must be valid to judge."""

    paths: tuple[str, ...]
    text: str


def path_of(loc: Loc) -> str:
    """As a person writes it: `models[2].name`."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def holds(path: str, other: str) -> bool:
    """Whether the first value is, or holds, the other."""
    return path == other or other.startswith((f"{path}.", f"{path}["))


def touches(path: str, other: str) -> bool:
    """Whether one of the two values is, or holds, the other."""
    return holds(path, other) or holds(other, path)


def wrong_value(fault: ErrorDetails) -> str:
    """What was written, if it is short, and what it should have been."""
    text = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
    text = _OWN_WORDS.get(fault["type"], text.replace("String should", "should"))
    given = fault["input"]
    if isinstance(given, str):
        return f"{_without_user(given)[:_SHOWN]!r} {text}"
    return f"{given} {text}" if isinstance(given, int | float | bool) else text


def _without_user(given: str) -> str:
    """The text without what stands before an @: in an address that is a user and a password."""
    before, at, after = given.rpartition("@")
    scheme = _SCHEME.match(before)
    return f"{scheme.group() if scheme else ''}***@{after}" if at else given


def unknown_key(model: type[BaseModel], loc: Loc) -> str:
    """What to say of a key that the section around it does not have."""
    return f"is no key here{did_you_mean(str(loc[-1]), _keys_at(model, loc[:-1]))}"


def did_you_mean(given: str, known: Collection[str]) -> str:
    """The likely word, else all that there are."""
    close = difflib.get_close_matches(given, known, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; there are: {', '.join(sorted(known))}" if known else "; there are none"


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys of the section at `loc`."""
    section = model
    entry = False  # the next part names an entry of a dict or a list, not a key of the section
    for part in loc:
        if entry:
            entry = False
            continue
        annotation = section.model_fields[str(part)].annotation
        section = next(kind for kind in _inside(annotation) if issubclass(kind, BaseModel))
        entry = get_origin(annotation) in (dict, tuple)
    return list(section.model_fields)


def _inside(kind: Any) -> list[type]:
    """The classes that an annotation is made of."""
    if isinstance(kind, type) and not get_args(kind):
        return [kind]
    return [found for part in get_args(kind) for found in _inside(part)]
