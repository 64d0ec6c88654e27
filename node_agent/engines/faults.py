"""What does an answer of an engine that is no success mean: whose fault is it, and what of it?

The caller's faults leave the engine healthy in the scheduler's eyes; full and loading engines
refuse, which charges nobody; only the rest counts against the engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from batchyard.v1 import types_pb2
from node_agent.engines.code_points import whole
from node_agent.engines.interface import EngineError

DENIED = frozenset({401, 403})
_INVALID = frozenset({400, 405, 406, 411, 413, 415, 422})
_NUMBER = re.compile(r"\d+")
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|longer than the model|max_total_tokens"
    r"|must be <= \d+\. Given",
    re.IGNORECASE,
)
# What llama.cpp's server answers 500 to, though the request is wrong (a raw body, mostly).
_CALLERS_500 = re.compile(
    r"Failed to parse (messages|tools):|Unknown reasoning format:|Cannot use both \w+ and"
)
_NO_SUCH_INPUT = re.compile(r"(image|audio|video) input is not supported")
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|CUDA OOM", re.IGNORECASE)
_FULL = re.compile(r"busy|full|queue|overload|capacity|too many|no slot", re.IGNORECASE)
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
            field=f"request.{field}" if field else "request",
            metadata={"feature": feature},
        )
    )


def unavailable(message: str, *, refused: bool = False) -> EngineError:
    """Return the error of an item whose server is not there, or no longer."""
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, message=message, refused=refused
    )


def busy(message: str) -> EngineError:
    """Return the error of an item for which there is no room now: full is not dead."""
    return EngineError(reason=types_pb2.ERROR_REASON_ENGINE_BUSY, message=message, refused=True)


def denied(who: str, words: str) -> EngineError:
    """Return the error of an item that a server does not let in, which serves others. `who` did
    what, and in which `words`. Whether it is not the agent itself that is kept out, is to be seen.
    """
    return EngineError(
        reason=types_pb2.ERROR_REASON_PERMISSION_DENIED,
        message=f"{who} to this request, and serves others of this agent: {words}; "
        "change the request, or have it allowed by who runs that server",
        field="request",
    )


def unknown_model(model: str, known: Iterable[str]) -> EngineError:
    """Return the error of an item for a model that is not here."""
    return EngineError(
        reason=types_pb2.ERROR_REASON_MODEL_NOT_FOUND,
        message=f"model {model!r} is not on this engine; it has: {', '.join(known) or 'none'}",
        refused=True,
    )


def broken(message: str, status: str) -> ItemFailed:
    """Return the error of an answer that no sound engine gives."""
    return ItemFailed(
        EngineError(
            reason=types_pb2.ERROR_REASON_ENGINE_ERROR,
            message=message,
            metadata={"engineStatus": status},
        )
    )


def stalled(which: str, limit_s: float) -> EngineError:
    """Return the error of an item whose engine said nothing for longer than a limit."""
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_STALLED,
        message=f"the engine said nothing for {limit_s:g} s ({which})",
        metadata={"limit": f"{limit_s:g}s"},
    )


def from_response(
    status: int, body: str, input_field: str, *, engine: str = "llama.cpp"
) -> EngineError:
    """Return the error that an HTTP answer, or an `error` event inside a stream, stands for.

    `input_field` names the request's input, for errors about the prompt.
    """
    fault = _fault(body)
    message = whole(str(fault.get("message") or body)[:_BODY_SHOWN])
    if _is_too_long(status, fault, message):
        return _too_long(fault, message, input_field)
    if status == 404:
        return _not_found(fault, message, engine)
    if status in _INVALID or (status == 500 and _CALLERS_500.match(message)):
        return EngineError(
            reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT, message=message, field="request"
        )
    if status == 501 or (status == 500 and _NO_SUCH_INPUT.match(message)):
        return unsupported("", "engine", f"{engine} cannot do this: {message}").error
    if status in DENIED:
        return denied(f"{engine} answered {status}", message)
    if status == 429 or (status == 503 and _FULL.search(message)):
        return busy(f"{engine} is full: {message}")
    if status == 503:
        return unavailable(f"{engine} is not ready: {message}", refused=True)
    reason = types_pb2.ERROR_REASON_ENGINE_ERROR
    if _OUT_OF_MEMORY.search(message):
        reason = types_pb2.ERROR_REASON_ENGINE_OOM
    return EngineError(
        reason=reason,
        message=f"{engine} answered {status}: {message}",
        metadata={"engineStatus": str(status)},
    )


def _not_found(fault: dict[str, Any], message: str, engine: str) -> EngineError:
    about = f"{fault.get('type')} {fault.get('code')} {fault.get('param')} {message}".lower()
    if "model" in about:
        return EngineError(
            reason=types_pb2.ERROR_REASON_MODEL_NOT_FOUND, message=message, refused=True
        )
    return unsupported("", "engine", f"{engine} has no such endpoint: {message}").error


def _is_too_long(status: int, fault: dict[str, Any], message: str) -> bool:
    if fault.get("type") == "exceed_context_size_error":
        return True
    if fault.get("code") == "context_length_exceeded":
        return True
    return status in _INVALID and _TOO_LONG.search(message) is not None


def _too_long(fault: dict[str, Any], message: str, input_field: str) -> EngineError:
    """Both lengths, by the engine's fields, else by its words: of two numbers the context is the
    smaller one, for otherwise there would be no error."""
    prompt, context = fault.get("n_prompt_tokens"), fault.get("n_ctx")
    numbers = [int(number) for number in _NUMBER.findall(message)]
    if (prompt is None or context is None) and len(numbers) >= 2:
        prompt, context = max(numbers[:2]), min(numbers[:2])
    metadata = {}
    if prompt is not None and context is not None:
        message = f"the prompt has {prompt} tokens, the context holds {context}: shorten it"
        metadata = {"promptTokens": str(prompt), "contextLength": str(context)}
    return EngineError(
        reason=types_pb2.ERROR_REASON_CONTEXT_TOO_LONG,
        message=message,
        field=f"request.{input_field}",
        metadata=metadata,
    )


def _fault(body: str) -> dict[str, Any]:
    """The error object of a body, whether it stands inside `error`, or is a text, or the body."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    fault = parsed.get("error", parsed)
    if isinstance(fault, str):
        return {"message": fault, "type": parsed.get("error_type")}
    return fault if isinstance(fault, dict) else {}
