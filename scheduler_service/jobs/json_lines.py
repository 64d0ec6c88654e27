"""What does a line of a job's file mean? The own form, or a line of OpenAI's batch files.

Own: a JobItem as protobuf writes JSON, `{"custom_id": "a", "request": {"text": {"prompt": "hi"}}}`.
OpenAI's: `{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}`. What
the body has and this scheduler does not know is refused by name, never dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from google.protobuf import json_format

from batchyard.errors import InvalidRequest
from batchyard.request import fill_request
from batchyard.v1 import inference_pb2, scheduler_service_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.rpc.validate import Refused

_ITEM: Final = frozenset({"custom_id", "customId", "request"})
_LINE: Final = frozenset({"custom_id", "method", "url", "body"})
_PARAMS: Final = (
    "model", "temperature", "top_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
    "max_tokens",
)  # fmt: skip
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # surrogates, which JSON can escape one by one
_IGNORED: Final = frozenset({"stream", "service_tier", "store"})  # say nothing about the answer


def read(line: bytes) -> scheduler_service_pb2.JobItem:
    """The item that a line stands for.

    Raises:
        Refused: naming the field of the line.
    """
    try:
        text = line.decode("utf-8-sig")  # a file may begin with a byte order mark
        document = json.loads(text, parse_constant=_refuse_constant)
        if _HALF.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as fault:
        half = ascii(fault.object[fault.start])
        raise Refused(f"has {half}, half of a character: no text can contain it") from None
    except (ValueError, RecursionError) as fault:
        raise Refused(f"is no JSON: {fault}") from None
    if not isinstance(document, dict):
        raise Refused("is no JSON object")
    if "body" in document or "url" in document:
        return _openai(document)
    unknown = sorted(set(document) - _ITEM)
    if unknown:
        raise Refused(
            f"has the unknown key {unknown[0][:64]!r}: a line has custom_id and request, or is one "
            "of OpenAI's batch files with custom_id, method, url and body",
            field=unknown[0][:64],
        )
    try:
        return json_format.ParseDict(document, scheduler_service_pb2.JobItem())
    except (json_format.ParseError, RecursionError) as fault:
        raise Refused(f"is no JobItem: {fault}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _openai(line: Mapping[str, Any]) -> scheduler_service_pb2.JobItem:
    unknown = sorted(set(line) - _LINE)
    if unknown:
        raise Refused(f"has the unknown key {unknown[0][:64]!r}", field=unknown[0][:64])
    custom_id, body = line.get("custom_id"), line.get("body")
    if not isinstance(custom_id, str):
        raise Refused("custom_id must be a string", field="custom_id")
    if not isinstance(body, dict):
        raise Refused("body must be an object", field="body")
    if line.get("method", "POST") != "POST":
        raise Refused('method must be "POST"', field="method")
    url = line.get("url")
    fill = _URLS.get(url) if isinstance(url, str) else None
    if fill is None:
        raise Refused(
            f"url must be one of {', '.join(_URLS)}; it is {str(url)[:64]!r}",
            field="url", reason=Reason.UNSUPPORTED_FEATURE, metadata={"feature": "url"},
        )  # fmt: skip
    item = scheduler_service_pb2.JobItem(custom_id=custom_id)
    rest = dict(body)
    if rest.get("stream"):
        raise Refused("a job's output is not streamed: leave stream out", field="body.stream")
    for name in _IGNORED:
        rest.pop(name, None)
    try:
        fill(item.request, rest)
    except InvalidRequest as fault:
        field = f"body.{fault.field}" if fault.field else "body"
        raise Refused(str(fault), field=field) from None
    if rest:
        name = min(rest)
        raise Refused(
            f"body.{name[:64]} is not known here",
            field=f"body.{name[:64]}", reason=Reason.UNSUPPORTED_FEATURE,
            metadata={"feature": name[:64]},
        )  # fmt: skip
    return item


def _chat(request: inference_pb2.InferenceRequest, body: dict[str, Any]) -> None:
    options = _options(body)
    messages = body.pop("messages", None)
    if not isinstance(messages, list):
        raise Refused("body.messages must be a list", field="body.messages")
    limit = body.pop("max_completion_tokens", None)
    if limit is not None:
        options["max_tokens"] = limit
    _response_format(body.pop("response_format", None), options)
    top = body.pop("top_logprobs", None)
    if body.pop("logprobs", None):
        options["logprobs"] = top or 0
    options["tools"] = body.pop("tools", None)
    choice = body.pop("tool_choice", None)
    options["tool_choice"] = choice if isinstance(choice, str | None) else json.dumps(choice)
    fill_request(request, None, messages, None, options)


def _completion(request: inference_pb2.InferenceRequest, body: dict[str, Any]) -> None:
    options = _options(body)
    prompt = body.pop("prompt", None)
    if not isinstance(prompt, str):
        raise Refused("body.prompt must be a string: one prompt a line", field="body.prompt")
    options["logprobs"] = body.pop("logprobs", None)
    fill_request(request, prompt, None, None, options)


def _embedding(request: inference_pb2.InferenceRequest, body: dict[str, Any]) -> None:
    options = _options(body)
    given = body.pop("input", None)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused("body.input must be a string or a list of strings", field="body.input")
    if body.pop("encoding_format", "float") != "float":
        raise Refused('body.encoding_format must be "float"', field="body.encoding_format")
    inner = inference_pb2.InferenceRequest()
    inner.embedding.texts.extend(texts)
    dimensions = body.pop("dimensions", None)
    if dimensions is not None:
        try:
            inner.embedding.dimensions = dimensions
        except (TypeError, ValueError) as fault:
            raise Refused(f"body.dimensions: {fault}", field="body.dimensions") from None
    fill_request(request, None, None, inner, options)


def _options(body: dict[str, Any]) -> dict[str, Any]:
    """What all bodies may have."""
    options: dict[str, Any] = {name: body.pop(name) for name in _PARAMS if name in body}
    if options.get("model") is not None and not isinstance(options["model"], str):
        raise Refused("body.model must be a string", field="body.model")
    options["user_id"] = body.pop("user", None)
    options["labels"] = body.pop("metadata", None)
    bias = body.pop("logit_bias", None)
    if bias is not None:
        try:
            options["logit_bias"] = {int(token): value for token, value in bias.items()}
        except (AttributeError, ValueError) as fault:
            raise Refused(f"body.logit_bias: {fault}", field="body.logit_bias") from None
    return options


def _response_format(given: Any, options: dict[str, Any]) -> None:
    kind = given.get("type") if isinstance(given, dict) else None
    if given is None or kind == "text":
        return
    if kind == "json_object":
        options["json_object"] = True
    elif kind == "json_schema" and isinstance(given.get("json_schema"), dict):
        options["json_schema"] = given["json_schema"].get("schema")
    else:
        raise Refused(
            "body.response_format must have the type text, json_object or json_schema",
            field="body.response_format",
        )


_URLS: Final[dict[str, Callable[[inference_pb2.InferenceRequest, dict[str, Any]], None]]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/embeddings": _embedding,
}
