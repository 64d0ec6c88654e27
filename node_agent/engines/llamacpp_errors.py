"""What does an answer of llama.cpp's server that is no success mean to us?"""

from __future__ import annotations

import json
from typing import Any

from batchyard.v1 import types_pb2
from node_agent.engines.interface import EngineError

_BODY_SHOWN = 500  # characters of a foreign error in our message


class ItemFailed(Exception):
    """An item ends with this error."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(error.message)
        self.error = error


def invalid(field: str, message: str) -> ItemFailed:
    """Return the error of a value that the caller must change."""
    return ItemFailed(
        EngineError(
            reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT,
            message=message,
            field=f"request.{field}",
        )
    )


def unsupported(field: str, feature: str, message: str) -> ItemFailed:
    """Return the error of a wish that this engine cannot fulfil."""
    return ItemFailed(
        EngineError(
            reason=types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
            message=message,
            field=f"request.{field}",
            metadata={"feature": feature},
        )
    )


def unavailable(message: str, *, refused: bool = False) -> EngineError:
    """Return the error of an item whose server is not there, or no longer."""
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, message=message, refused=refused
    )


def from_response(status: int, body: str, input_field: str) -> EngineError:
    """Return the error that an HTTP answer, or an `error` event inside a stream, stands for.

    `input_field` names the request's input, for errors about the prompt.
    """
    fault = _fault(body)
    message = str(fault.get("message") or body)[:_BODY_SHOWN]
    if fault.get("type") == "exceed_context_size_error":
        prompt, context = fault.get("n_prompt_tokens"), fault.get("n_ctx")
        return EngineError(
            reason=types_pb2.ERROR_REASON_CONTEXT_TOO_LONG,
            message=f"the prompt has {prompt} tokens, the context holds {context}: shorten it",
            field=f"request.{input_field}",
            metadata={"promptTokens": str(prompt), "contextLength": str(context)},
        )
    if status == 400:
        return EngineError(
            reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT, message=message, field="request"
        )
    if status == 503:
        return unavailable(f"llama.cpp is not ready: {message}", refused=True)
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_ERROR,
        message=f"llama.cpp answered {status}: {message}",
        metadata={"engineStatus": str(status)},
    )


def _fault(body: str) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    fault = parsed.get("error") if isinstance(parsed, dict) else None
    return fault if isinstance(fault, dict) else {}
