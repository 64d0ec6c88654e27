"""How are long lists read page by page?

A token names the last row of the page before, not a position, so rows that come and go meanwhile
shift nothing. It carries a digest of the filter: with another one it is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from scheduler_service.rpc.validate import Refused

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 1_000
_DIGEST: Final = 8

T = TypeVar("T")


class ListRequest(Protocol):
    """What all list requests have."""

    page_size: int
    page_token: str


def page_size(asked: int) -> int:
    """Rows of a page: 0 is 50, more than 1,000 is 1,000.

    Raises:
        Refused: it is negative.
    """
    if asked < 0:
        raise Refused(f"page_size is {asked}; it must be 0 or more", field="page_size")
    return min(asked, PAGE_MAX) or PAGE_DEFAULT


def cursor(request: ListRequest) -> str:
    """The key of the last row seen; empty: this is the first page.

    Raises:
        Refused: the token is not one of ours for this filter.
    """
    token = request.page_token
    if not token:
        return ""
    try:
        raw = base64.urlsafe_b64decode(token.encode())
        digest, key = raw[:_DIGEST], raw[_DIGEST:].decode()
    except (ValueError, binascii.Error):
        digest, key = b"", ""
    if digest != _digest(request) or not key:
        raise Refused(
            "page_token is not one that this list gave for this filter; begin without one",
            field="page_token",
        )
    return key


def page(
    request: ListRequest, rows: Iterable[T], size: int, key: Callable[[T], str]
) -> tuple[list[T], str]:
    """The first `size` rows after the cursor, and the token of the next page; empty: the end."""
    taken = [row for row, _ in zip(rows, range(size + 1), strict=False)]
    if len(taken) <= size:
        return taken, ""
    return taken[:size], token_after(request, key(taken[size - 1]))


def token_after(request: ListRequest, key: str) -> str:
    """The token of the page that begins after that row."""
    return base64.urlsafe_b64encode(_digest(request) + key.encode()).decode()


def _digest(request: ListRequest) -> bytes:
    """Of the filter: all of the request but the page."""
    assert isinstance(request, Message)
    bare = type(request)()
    bare.CopyFrom(request)
    bare.ClearField("page_size")
    bare.ClearField("page_token")
    text = type(request).__name__.encode() + bare.SerializeToString(deterministic=True)
    return blake2b(text, digest_size=_DIGEST).digest()
