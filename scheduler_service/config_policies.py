"""Which options has a policy, and what do the configured ones mean?

A policy's options are the fields of its dataclass, annotated Duration, int, float, bool or str; so
a policy that is added to the registry can be configured without a word here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from scheduler_service import policies
from service_kit.config_faults import did_you_mean
from service_kit.units import duration_ns

# Options that have a section of their own in the file, by question.
SCALE_OPTIONS: Final = ("queue", "wait", "cooldown_out", "idle", "cooldown_in")
_ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    "failover": ("settings", "seed"),
    "autoscale": SCALE_OPTIONS,
}


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("is no whole number of 0 or more")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("is no number")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    return value


READ: Final[dict[str, Callable[[object], Any]]] = {
    "Duration": duration_ns,
    "int": _whole,
    "float": _number,
    "bool": _flag,
    "str": _text,
}


def option_fields(question: str, name: str) -> list[dataclasses.Field[Any]]:
    """The options of a registered policy that its section `options` may set."""
    policy = policies.REGISTRY[question][name]
    elsewhere = _ELSEWHERE.get(question, ())
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(policy)  # type: ignore[arg-type]
    return [field for field in fields if field.name not in elsewhere]


def scale_options(name: str) -> list[str]:
    """Fields of that scaling policy which the section `autoscale` sets."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(policies.AUTOSCALE[name])
    return [field.name for field in fields if field.name in SCALE_OPTIONS]


def read_options(question: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the policy takes them.

    Raises:
        ValueError: `faults` has something to say of them.
    """
    kinds = {field.name: str(field.type) for field in option_fields(question, name)}
    return {key: READ[kinds[key]](value) for key, value in given.items()}


def faults(question: str, name: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong: the path below the policy's own ("name", "options.levels"), and the text."""
    known = policies.REGISTRY[question]
    if name not in known:
        yield "name", f'there is no policy "{name}"{did_you_mean(name, list(known))}'
        return
    kinds = {field.name: str(field.type) for field in option_fields(question, name)}
    for key, value in given.items():
        if key in _ELSEWHERE.get(question, ()):
            yield f"options.{key}", f"is set in the section `{question}`"
        elif key not in kinds:
            yield f"options.{key}", f"is no option of {name}{did_you_mean(key, list(kinds))}"
        else:
            try:
                READ[kinds[key]](value)
            except ValueError as fault:
                yield f"options.{key}", f"{value!r} {fault}"
