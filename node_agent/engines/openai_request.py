"""How is an item put to an OpenAI-compatible server? Every field is passed on, or refused by name.

Generating calls always stream, so that what was written before a cancel is known. Raw bodies go as
they are, unknown keys too, with model, stream and priority set. To continue an output, its text
follows the prompt: as the beginning of the assistant's turn where the server can leave that open,
or behind the bare prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from batchyard.v1 import inference_pb2
from node_agent.engines.faults import invalid, unsupported
from node_agent.engines.interface import Item
from node_agent.engines.json_text import json_object
from node_agent.engines.openai_chat import chat_body
from node_agent.engines.openai_served import Served, ServedModel

Params = inference_pb2.GenerationParams

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RAW_PATHS = {
    "openai.chat.v1": CHAT,
    "openai.completions.v1": COMPLETIONS,
    "openai.embeddings.v1": EMBEDDINGS,
}
PLAIN_MAX_TOKENS = 512  # servers end plain completions after 16 tokens if nothing is said

_SHARED = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_EXTRA = ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos")
_OURS = frozenset(
    {"messages", "prompt", "input", "stream", "stream_options", "model", "n", "max_tokens"}
)
_GUIDES = ("response_format", "tools", "structured_outputs", "json_schema", "grammar", "regex")


@dataclass(slots=True, kw_only=True)
class Call:
    """One HTTP request to the server."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    inputs: int  # slots that it takes
    input_field: str  # of the request, for errors about the prompt
    streams: bool
    raw_type: str = ""  # content type of a raw answer; empty: not raw
    choices: int = 1  # outputs of the answer
    nothing_left: bool = False  # a continuation of an output that is long enough


def build_call(item: Item, model: ServedModel, served: Served, slots: int) -> Call:
    """Return the call for `item`.

    Raises:
        ItemFailed: a part of it is wrong, or cannot be done.
    """
    kind = item.request.WhichOneof("input")
    if kind == "raw":
        call = _raw(item, served)
    elif kind == "embedding":
        call = _embedding(item.request.embedding, served)
    elif kind in ("text", "chat", "tokens"):
        call = _generating(item, kind, model, served)
    elif kind is None:
        raise invalid("input", "there is no input")
    else:
        raise unsupported(kind, kind, f"this engine takes no input of kind {kind!r}")
    call.inputs = min(call.inputs, slots)
    call.body["model"] = model.engine_name
    if call.streams:
        call.body["stream"] = True
        if served.traits.stream_options:
            call.body["stream_options"] = served.traits.stream_options
        call.body.update(served.traits.stream_body)
    if served.priority != "omit":
        urgency = item.priority - 5
        call.body["priority"] = -urgency if served.priority == "low_first" else urgency
    else:
        call.body.pop("priority", None)
    call.headers["X-Request-Id"] = f"batchyard-{item.dispatch_id:x}"
    if item.traceparent:
        call.headers["traceparent"] = item.traceparent
    return call


def encode(call: Call) -> bytes:
    """Return the body as it is sent.

    Raises:
        ItemFailed: it holds a number that JSON does not have.
    """
    try:
        return json.dumps(call.body, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise invalid("params", f"cannot be written as JSON: {error}") from error


def _call(path: str, body: dict[str, Any], field: str, *, inputs: int, streams: bool) -> Call:
    return Call(path=path, body=body, headers={}, inputs=inputs, input_field=field, streams=streams)


def _generating(item: Item, kind: str, model: ServedModel, served: Served) -> Call:
    request, params = item.request, item.request.params
    for name in ("token_ids", "omit_text"):
        if getattr(request.output, name):
            raise unsupported(f"output.{name}", name, "this engine sends no token ids")
    body = _engine_options(params)
    _add_sampling(body, params, served)
    path = _add_input(body, item, kind, model, served)
    _add_logprobs(body, request.output, path, served)
    _add_constraint(body, params, path, served)
    choices = params.n or 1
    if choices > 1:
        body["n"] = choices
    call = _call(path, body, kind, inputs=choices, streams=True)
    call.choices = choices
    limit = item.max_tokens or params.max_tokens or served.options.max_tokens
    if not limit and path == COMPLETIONS:
        limit = PLAIN_MAX_TOKENS
    if limit:
        spent = item.continuation.output_tokens if item.continuation is not None else 0
        body["max_tokens"] = limit - spent
        call.nothing_left = limit <= spent
    return call


def _engine_options(params: Params) -> dict[str, Any]:
    if not params.engine_options_json:
        return {}
    field = "params.engine_options_json"
    options = json_object(params.engine_options_json, field)
    taken = sorted((_OURS | {"priority"}) & options.keys())
    if taken:
        raise invalid(field, f"set by the request's own fields: {', '.join(taken)}")
    return options


def _add_sampling(body: dict[str, Any], params: Params, served: Served) -> None:
    theirs = served.traits.params
    for name in _SHARED:
        if params.HasField(name):
            body[name] = getattr(params, name)
    for name in _EXTRA:
        if not params.HasField(name):
            continue
        if name in theirs:
            body[theirs[name]] = getattr(params, name)
        elif getattr(params, name):
            raise _cannot(f"params.{name}", name, served)
    if params.stop_token_ids:
        if "stop_token_ids" not in theirs:
            raise _cannot("params.stop_token_ids", "stop_token_ids", served)
        body["stop_token_ids"] = list(params.stop_token_ids)
    if params.stop:
        body["stop"] = list(params.stop)
    if params.logit_bias:
        body["logit_bias"] = {str(k): v for k, v in sorted(params.logit_bias.items())}


def _add_logprobs(
    body: dict[str, Any], output: inference_pb2.OutputOptions, path: str, served: Served
) -> None:
    if not output.HasField("logprobs"):
        return
    if "logprobs" not in served.traits.takes:
        raise _cannot("output.logprobs", "logprobs", served)
    if path == CHAT:
        body.update(logprobs=True, top_logprobs=output.logprobs)
    else:
        body["logprobs"] = output.logprobs


def _add_constraint(body: dict[str, Any], params: Params, path: str, served: Served) -> None:
    kind = params.WhichOneof("constraint")
    if kind in ("regex", "grammar"):
        key = served.traits.constraints.get(kind)
        if key is None:
            raise _cannot(f"params.{kind}", kind, served)
        _put(body, key, getattr(params, kind))
    elif kind == "json_schema":
        schema = json_object(params.json_schema, "params.json_schema")
        plain = served.traits.constraints.get("json_schema_of_completions")
        if path == COMPLETIONS and plain is not None:
            body[plain] = schema
        else:
            named = {"name": "answer", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
    elif kind == "json_object" and params.json_object:
        body["response_format"] = {"type": "json_object"}


def _add_input(
    body: dict[str, Any], item: Item, kind: str, model: ServedModel, served: Served
) -> str:
    """Put the prompt and the output so far into `body`; return the path to send it to."""
    request = item.request
    delivered = _delivered(item)
    if kind == "tokens":
        if "tokens" not in served.traits.takes:
            raise _cannot("tokens", "tokens", served)
        if not request.tokens.ids:
            raise invalid("tokens.ids", "there is no token")
        if delivered:
            raise unsupported("continuation", "continuation", "ids are not continued by text")
        body["prompt"] = list(request.tokens.ids)
        return COMPLETIONS
    if kind == "text":
        prompt = request.text.prompt
        if not prompt:
            raise invalid("text.prompt", "the prompt is empty")
        if not (served.options.apply_chat_template and model.chats):
            body["prompt"] = prompt + delivered
            return COMPLETIONS
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body.update(chat_body(request.chat, served))
    if delivered:
        _open_turn(body, delivered, served)
    return CHAT


def _delivered(item: Item) -> str:
    """Return the output to go on from; refuse where going on would not be right."""
    if item.continuation is None:
        return ""
    params = item.request.params
    guided = params.WhichOneof("constraint") is not None or item.request.chat.tools_json
    if params.n > 1 or guided or item.continuation.reasoning:
        raise _no_continuation()
    return item.continuation.text


def _open_turn(body: dict[str, Any], delivered: str, served: Served) -> None:
    """Let the assistant's turn begin with what was delivered, and have it left open."""
    if served.traits.continue_chat is None:
        raise unsupported(
            "continuation", "continuation", f"{served.traits.title} continues no chat: start again"
        )
    last = body["messages"][-1]
    if last.get("role") == "assistant" and isinstance(last.get("content"), str):
        last["content"] += delivered  # the caller began the turn already
    else:
        body["messages"].append({"role": "assistant", "content": delivered})
    body.update(served.traits.continue_chat)


def _embedding(embedding: inference_pb2.EmbeddingInput, served: Served) -> Call:
    if "embedding" not in served.traits.takes:
        raise _cannot("embedding", "embedding", served)
    if not embedding.texts or not all(embedding.texts):
        raise invalid("embedding.texts", "there is no text, or an empty one")
    body: dict[str, Any] = {"input": list(embedding.texts), "encoding_format": "float"}
    if embedding.dimensions:
        body["dimensions"] = embedding.dimensions
    texts = len(embedding.texts)
    call = _call(EMBEDDINGS, body, "embedding", inputs=texts, streams=False)
    call.choices = texts
    return call


def _raw(item: Item, served: Served) -> Call:
    raw = item.request.raw
    words = [word.strip() for word in raw.content_type.split(";")]
    api = next((word[4:] for word in words if word.startswith("api=")), "")
    path = RAW_PATHS.get(api)
    if path is None:
        known = ", ".join(RAW_PATHS)
        text = f"the content type must name one of these: api={known}"
        raise unsupported("raw.content_type", "raw", text)
    body = json_object(raw.data, "raw.data")
    choices = body.get("n") or 1
    if not isinstance(choices, int) or not 1 <= choices <= 128:
        raise invalid("raw.data", "n must be from 1 to 128")
    streams = item.stream and path != EMBEDDINGS
    call = _call(path, body, "raw.data", inputs=choices, streams=streams)
    call.choices = choices
    if path == EMBEDDINGS and isinstance(body.get("input"), list):
        call.inputs = max(1, len(body["input"]))
    call.raw_type = "" if streams else raw.content_type
    body.pop("stream_options", None)
    body["stream"] = streams
    _limit_raw(body, item, call)
    if item.continuation is not None and item.continuation.text:
        _continue_raw(body, item, path, served)
    return call


def _limit_raw(body: dict[str, Any], item: Item, call: Call) -> None:
    """The scheduler's limit (a degrade may lower it), less what a continuation has spent."""
    key = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    asked = body.get(key) if isinstance(body.get(key), int) else 0
    limit = min(filter(None, (asked, item.max_tokens)), default=0)
    spent = item.continuation.output_tokens if item.continuation is not None else 0
    if limit and call.path != EMBEDDINGS and (spent or limit != asked):
        body[key] = limit - spent
        call.nothing_left = limit <= spent


def _continue_raw(body: dict[str, Any], item: Item, path: str, served: Served) -> None:
    assert item.continuation is not None
    if (body.get("n") or 1) > 1 or any(body.get(k) for k in _GUIDES) or item.continuation.reasoning:
        raise _no_continuation()
    if path == CHAT and isinstance(body.get("messages"), list) and body["messages"]:
        _open_turn(body, item.continuation.text, served)
    elif path == COMPLETIONS and isinstance(body.get("prompt"), str):
        body["prompt"] += item.continuation.text
    else:
        raise _no_continuation()


def _put(body: dict[str, Any], key: str, value: object) -> None:
    *outer, last = key.split(".")
    for part in outer:
        body = body.setdefault(part, {})
    body[last] = value


def _cannot(field: str, feature: str, served: Served) -> Exception:
    return unsupported(field, feature, f"{served.traits.title} cannot do {feature}")


def _no_continuation() -> Exception:
    return unsupported(
        "continuation",
        "continuation",
        "several choices, guided output, tools and reasoning cannot be continued: start again",
    )
