"""Is this text JSON of the right kind, and not nested too deeply?

Tool definitions, schemas and engine options travel as text: key order and large integers survive.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_STRINGS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS: Final = str.maketrans("[{]}", "(())", " \t\r\n,:+-.0123456789eEtrufalsn")


def fault(text: str, kind: type | tuple[type, ...], max_depth: int) -> str:
    """What is wrong with it; empty: nothing. `kind`: what it must be once parsed."""
    try:
        parsed: Any = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return _too_deep(max_depth)
    except ValueError as error:
        return f"is no JSON: {error}"
    if not isinstance(parsed, kind):
        return f"has the wrong JSON type, {_NAMES[type(parsed)]}"
    return "" if _is_within(text, max_depth) else _too_deep(max_depth)


def _is_within(text: str, max_depth: int) -> bool:
    """Whether valid JSON nests that deep at most. Each pass takes the innermost level away, all of
    it at C speed: a loop over the characters would hold up everybody for a large text.
    """
    brackets = _STRINGS.sub("", text).translate(_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return True
        brackets = brackets.replace("()", "")
    return not brackets


def _too_deep(max_depth: int) -> str:
    return f"is nested deeper than {max_depth} levels"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


_NAMES: Final = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "number",
    float: "number", type(None): "null",
}  # fmt: skip
