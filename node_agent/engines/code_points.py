r"""Which characters of a text are whole, and how do the halves of one come together again?

Servers that cut text at tokens may cut a character, too, in one of three ways. JSON spells half of
it ("\ud83d", then "\ude00"), or the bytes of its UTF-8 come in two events: both can be joined here.
Where the server put U+FFFD in place of what it could not tell, nothing is left to join.

A byte that is no UTF-8 stands in a text as Python's "surrogateescape" has it: U+DC80 to U+DCFF.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")
_BYTES = re.compile("[\udc80-\udcff]+")
_BEGUN = re.compile(  # at the end: a first half, or UTF-8 that wants more bytes
    "(?:[\ud800-\udbff]|[\udcc2-\udcdf]|[\udce0-\udcef][\udc80-\udcbf]?"
    "|[\udcf0-\udcf4][\udc80-\udcbf]{0,2})\\Z"
)


def whole(text: str) -> str:
    """Return `text` with U+FFFD for what is no whole character: a message may hold no half."""
    if text.isascii() or not _HALF.search(text):
        return text
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    read = _BYTES.sub(_read, paired)
    return read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def join(begun: dict[int, str], channel: int, text: str) -> str:
    """Return what is whole of `text`, which goes on where its channel stopped. A character that
    only begins at its end is kept in `begun` until the rest comes.
    """
    if not text or (not begun and text.isascii()):
        return text
    text = begun.pop(channel, "") + text
    if not _HALF.search(text):
        return text
    end = _BEGUN.search(text)
    if end is not None:
        begun[channel] = end[0]
        text = text[: end.start()]
    return whole(text)


def _read(found: re.Match[str]) -> str:
    return found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
