"""What does a prompt tell the simulated engine to do? For tests; the option `directives` ends it.

    [[tokens=40]]   natural length of the answer
    [[sleep=2s]]    so much later
    [[fail]]        fails with ENGINE_ERROR; [[fail=5]]: after 5 tokens
    [[stall]]       runs and never answers, until cancelled; [[stall=5]]: after 5 tokens
    [[crash]]       the process dies, without clean-up; [[crash=5]]: after 5 tokens

With "@2" before the closing brackets ([[crash@1]], [[fail=5@2]]) it holds for that attempt only.
Of two alike the later one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from service_kit.units import duration_s

_FORM = re.compile(r"\[\[(tokens|sleep|fail|stall|crash)(?:=([^\]@]*))?(?:@([0-9]+))?\]\]")
_WHOLE = re.compile(r"[0-9]{1,7}")


class Fate(Enum):
    """How an item's run ends when nothing outside ends it."""

    FINISH = "finish"
    FAIL = "fail"
    STALL = "stall"
    CRASH = "crash"


@dataclass(slots=True)
class Directives:
    """What a prompt asked for."""

    tokens: int | None = None
    sleep_s: float = 0.0
    fate: Fate = Fate.FINISH
    fate_after: int = 0  # tokens


NONE = Directives()


def read_directives(prompt: str, attempt: int) -> Directives:
    """Return what `prompt` asks of this attempt.

    Raises:
        ValueError: a directive has a value that it cannot have.
    """
    if "[[" not in prompt:
        return NONE
    directives = Directives()
    for name, value, only_attempt in _FORM.findall(prompt):
        if only_attempt and int(only_attempt) != attempt:
            continue
        if name == "sleep":
            directives.sleep_s = _seconds(name, value)
        elif name == "tokens":
            directives.tokens = _whole(name, value)
        else:
            directives.fate = Fate(name)
            directives.fate_after = _whole(name, value or "0")
    return directives


def _seconds(name: str, value: str) -> float:
    try:
        return duration_s(value)
    except ValueError as fault:
        raise ValueError(f"[[{name}={value}]] {fault}") from fault


def _whole(name: str, value: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise ValueError(f"[[{name}={value}]] needs a whole number below 10 million")
    return int(value)
