"""How do log probabilities read in OpenAI's two forms: that of chats, and that of completions?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchyard.v1 import types_pb2


def read_logprobs(event: Mapping[str, Any]) -> list[types_pb2.TokenLogprob]:
    """Return a row for each token; log probabilities above 0 (rounding) become 0."""
    if event.get("content") is not None:
        return [_chat_row(row) for row in event["content"]]
    tokens, values = event.get("tokens") or (), event.get("token_logprobs") or ()
    tops = event.get("top_logprobs") or [None] * len(tokens)
    return [
        types_pb2.TokenLogprob(
            token=_bytes(token),
            logprob=_value(value),
            alternatives=_ranked(top or {}),
        )
        for token, value, top in zip(tokens, values, tops, strict=False)
    ]


def _chat_row(row: Mapping[str, Any]) -> types_pb2.TokenLogprob:
    alternatives = [
        types_pb2.AlternativeToken(
            token=_token(other), token_id=_id(other), logprob=_value(other["logprob"])
        )
        for other in row.get("top_logprobs") or ()
    ]
    return types_pb2.TokenLogprob(
        token=_token(row),
        token_id=_id(row),
        logprob=_value(row["logprob"]),
        alternatives=alternatives,
    )


def _ranked(top: Mapping[str, float]) -> list[types_pb2.AlternativeToken]:
    pairs = sorted(top.items(), key=lambda pair: -_value(pair[1]))
    return [types_pb2.AlternativeToken(token=_bytes(t), logprob=_value(v)) for t, v in pairs]


def _token(row: Mapping[str, Any]) -> bytes:
    """Its bytes, which alone are right where a token is a part of a code point."""
    spelled = row.get("bytes")
    return bytes(spelled) if spelled and isinstance(spelled, list) else _bytes(row["token"])


def _bytes(token: str) -> bytes:
    """Those that the server sent, also of a token that is a part of a code point."""
    try:
        return token.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a code point, spelled in JSON
        return token.encode("utf-8", "replace")


def _id(row: Mapping[str, Any]) -> int | None:
    number = row.get("id")
    return number if isinstance(number, int) and number >= 0 else None


def _value(logprob: float | None) -> float:
    """The first token of an echoed prompt has none: it counts as sure."""
    return 0.0 if logprob is None else max(-1e30, min(0.0, logprob))
