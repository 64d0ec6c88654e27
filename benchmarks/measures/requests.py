"""The one request that all measures send, and the bytes of it."""

from __future__ import annotations

from typing import Any, Final

from batchyard.v1 import (
    Call,
    GenerateRequest,
    GenerationParams,
    InferenceRequest,
    MultiplexRequest,
    TextInput,
)

PROMPT: Final = "Summarise in one sentence what this service is for and whom it helps."
OPTIONS: Final[dict[str, Any]] = {"priority": 6, "max_tokens": 1, "timeout": "60s"}


def request(model: str, max_tokens: int = 1) -> InferenceRequest:
    """With the same fields as the client library's."""
    made = InferenceRequest(
        model=model,
        priority=OPTIONS["priority"],
        text=TextInput(prompt=PROMPT),
        params=GenerationParams(max_tokens=max_tokens),
    )
    made.timeout.seconds = 60
    return made


def unary_bytes(model: str) -> bytes:
    """The body of one unary call."""
    return GenerateRequest(request=request(model)).SerializeToString()


def packed_bytes(model: str) -> bytes:
    """One request as it stands in a Multiplex message; joined, such make a message of many."""
    asked = request(model)
    asked.request_id = "0" * 32
    return MultiplexRequest(calls=[Call(call_id=1 << 20, request=asked)]).SerializeToString()
