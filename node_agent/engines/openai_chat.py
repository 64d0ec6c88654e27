"""How do a conversation's turns read in OpenAI's form?"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlsplit

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.faults import ItemFailed, invalid, unsupported
from node_agent.engines.interface import EngineError
from node_agent.engines.json_text import json_array
from node_agent.engines.openai_served import Served


def chat_body(chat: inference_pb2.ChatInput, served: Served) -> dict[str, Any]:
    """Return the keys of the body that a chat fills.

    Raises:
        ItemFailed: a part of it is wrong, or cannot be done by this server.
    """
    if not chat.messages:
        raise invalid("chat.messages", "there is no message")
    turns = [_turn(i, message, served) for i, message in enumerate(chat.messages)]
    body: dict[str, Any] = {"messages": turns}
    if chat.tools_json:
        if "tools" not in served.traits.takes:
            raise unsupported("chat.tools_json", "tools", "this engine calls no tools")
        body["tools"] = json_array(chat.tools_json, "chat.tools_json")
        body["tool_choice"] = _tool_choice(chat.tool_choice or "auto")
    return body


def _tool_choice(choice: str) -> str | dict[str, Any]:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _turn(index: int, message: inference_pb2.ChatMessage, served: Served) -> dict[str, Any]:
    place = f"chat.messages[{index}]"
    turn: dict[str, Any] = {"role": message.role}
    if message.name:
        turn["name"] = message.name
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if all(part.WhichOneof("part") == "text" for part in message.parts):
        turn["content"] = "".join(part.text for part in message.parts)
        return turn
    turn["content"] = [
        _part(f"{place}.parts[{j}]", part, served) for j, part in enumerate(message.parts)
    ]
    return turn


def _call(call: types_pb2.ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _part(place: str, part: inference_pb2.ContentPart, served: Served) -> dict[str, Any]:
    kind = part.WhichOneof("part")
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind != "image" or not served.takes_images:
        feature = f"{kind or 'empty'}_input"
        raise unsupported(place, feature, f"{served.traits.title} here reads no such part")
    url = _image_url(f"{place}.image", part.image, served)
    return {"type": "image_url", "image_url": {"url": url}}


def _image_url(place: str, image: inference_pb2.PayloadRef, served: Served) -> str:
    """The bytes themselves, or where the server is to fetch them: from allowed hosts only."""
    if image.WhichOneof("source") == "uri":
        parts = urlsplit(image.uri)
        if parts.scheme != "https" or parts.hostname not in served.options.image_hosts:
            raise ItemFailed(
                EngineError(
                    reason=types_pb2.ERROR_REASON_PERMISSION_DENIED,
                    message="this engine fetches no images from there: send it inline",
                    field=f"request.{place}.uri",
                )
            )
        return image.uri
    if not image.inline:
        raise invalid(f"{place}.inline", "the image is empty")
    data = base64.b64encode(image.inline).decode()
    return f"data:{image.media_type or 'application/octet-stream'};base64,{data}"
