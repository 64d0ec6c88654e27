"""Which attempt wrote which part of a text? The simulated engine's output and its checker.

Token i of an output is "{i}:{nonce} ". The nonce comes from the dispatch id (and the choice), so
each attempt has its own and every splice of two attempts shows, down to the character:

    "0:9f1c04 1:9f1c04 2:41aa70 "        attempt 2 went on where attempt 1 stopped: dense indexes
    "0:9f1c04 1:9f1c04 0:41aa70 "        attempt 2 started again inside the same output: a fault
"""

from __future__ import annotations

import re
from functools import lru_cache

NONCE_LENGTH = 6
_SHORT = 256  # tokens; templates of longer texts are not kept
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # multiplied by these, small steps turn the upper bits
_ODD_TOO = 0xC2B2AE3D27D4EB4F
_TOKEN = re.compile(rf"(\d+):([0-9a-f]{{{NONCE_LENGTH}}}) ")


def nonce_of(dispatch_id: int, choice: int = 0) -> str:
    """Return the mark that this attempt's tokens carry; those of ids close together differ."""
    return f"{((dispatch_id * _ODD + choice * _ODD_TOO) & _MASK) >> 40:06x}"


def token(index: int, nonce: str) -> str:
    """Return the text of one token."""
    return f"{index}:{nonce} "


def tokens(nonce: str, first: int, count: int) -> str:
    """Return `count` tokens from index `first`, joined."""
    template = _short_template if count <= _SHORT else _template
    return template(first, count).replace("~", nonce)


def _template(first: int, count: int) -> str:
    return "".join(f"{index}:~ " for index in range(first, first + count))


_short_template = lru_cache(maxsize=4096)(_template)


def check_text(text: str) -> list[tuple[str, int, int]]:
    """Return the runs of `text`, in order, as (nonce, first index, last index).

    A run ends where the nonce changes or the indexes stop being dense, so an attempt that wrote
    without a gap is one run, and a legal continuation starts one above the run before it.

    Raises:
        ValueError: `text` is not made of whole tokens; the message says where.
    """
    runs: list[tuple[str, int, int]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            part = text[position : position + 20]
            raise ValueError(f"no whole token at character {position}: {part!r}")
        index, nonce = int(match[1]), match[2]
        if runs and runs[-1][0] == nonce and runs[-1][2] == index - 1:
            runs[-1] = (nonce, runs[-1][1], index)
        else:
            runs.append((nonce, index, index))
        position = match.end()
    return runs


def is_seamless(text: str) -> bool:
    """Tell whether the indexes of `text` are 0, 1, 2, ..., whoever wrote them."""
    following = 0
    for _, first, last in check_text(text):
        if first != following:
            return False
        following = last + 1
    return True
