"""From OpenAI-shaped messages to a ChatInput."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from batchyard.errors import InvalidRequest
from batchyard.v1 import ChatInput, ChatMessage, ContentPart, PayloadRef

__all__ = ["fill_chat"]

_KEYS = frozenset({"role", "content", "name", "tool_call_id", "tool_calls"})


def fill_chat(target: ChatInput, messages: Any) -> None:
    """Adds `messages` to `target`: dicts as OpenAI's API takes them, or ChatMessages.

    A message's content is text, or a list of parts `{"type": "text" | "image_url" | ...}`.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise _refusal('must be a list, as in [{"role": "user", "content": "hi"}]', "messages")
    if not messages:
        raise _refusal("must not be empty", "messages")
    for index, message in enumerate(messages):
        field = f"messages[{index}]"
        try:
            _add_message(target, message, field)
        except InvalidRequest:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise _refusal(f"is not valid: {error!r}", field) from error


def _add_message(target: ChatInput, message: Any, field: str) -> None:
    if isinstance(message, ChatMessage):
        target.messages.append(message)
        return
    if not isinstance(message, Mapping):
        raise _refusal(f"must be a dict, not a {type(message).__name__}", field)
    unknown = sorted(set(message) - _KEYS)
    if unknown:
        raise _refusal(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}", field)
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise _refusal('must be text, as in "user"', f"{field}.role")
    added = target.messages.add(role=message["role"])
    added.name = message.get("name") or ""
    added.tool_call_id = message.get("tool_call_id") or ""
    _add_content(added, message.get("content"), f"{field}.content")
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        added.tool_calls.add(
            id=call.get("id", ""),
            name=function["name"],
            arguments_json=function.get("arguments", ""),
            index=index,
        )


def _add_content(message: ChatMessage, content: Any, field: str) -> None:
    if content is None:
        return  # an assistant's turn that only calls tools
    if isinstance(content, str):
        message.parts.add(text=content)
        return
    if not isinstance(content, Sequence):
        raise _refusal(f"must be text or a list, not a {type(content).__name__}", field)
    for index, part in enumerate(content):
        _add_part(message.parts.add(), part, f"{field}[{index}]")


def _add_part(target: ContentPart, part: Any, field: str) -> None:
    if isinstance(part, str):
        target.text = part
        return
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text":
        target.text = part["text"]
    elif kind == "image_url":
        image = part["image_url"]
        _fill_url(target.image, image if isinstance(image, str) else image["url"])
    elif kind == "input_audio":
        audio = part["input_audio"]
        target.audio.inline = base64.b64decode(audio["data"], validate=True)
        target.audio.media_type = f"audio/{audio['format']}"
    else:
        raise _refusal('must have the type "text", "image_url" or "input_audio"', field)


def _fill_url(target: PayloadRef, url: str) -> None:
    if not url.startswith("data:"):
        target.uri = url
        return
    head, _, data = url.partition(",")
    target.media_type = head.removeprefix("data:").partition(";")[0]
    target.inline = base64.b64decode(data, validate=True)


def _refusal(problem: str, field: str) -> InvalidRequest:
    return InvalidRequest(problem, reason="INVALID_ARGUMENT", field=field)
