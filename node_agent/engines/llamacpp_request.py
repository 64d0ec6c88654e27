"""How is an item put to llama.cpp's server? Every field is passed on, or refused by name.

Chats, and plain prompts unless `apply_chat_template` is off, go through the model's chat template
(/v1/chat/completions); token ids and bare prompts do not (/v1/completions). To continue an output,
its text follows the prompt: as the beginning of the assistant's turn, which the server leaves open,
or behind the bare prompt. All calls stream, so that what was written before a cancel is known, and
ask for progress events: the server notices a lost connection only when it writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from batchyard.v1 import inference_pb2
from node_agent.engines.faults import invalid, unsupported
from node_agent.engines.interface import Item
from node_agent.engines.json_text import json_object
from node_agent.engines.llamacpp_options import LlamacppOptions

Params = inference_pb2.GenerationParams

_RENAMED = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repeat_penalty",
    "ignore_eos": "ignore_eos",
}
_CANNOT = {  # parameter: why
    "min_tokens": "llama.cpp has no shortest output",
    "regex": "llama.cpp takes no regular expression: give a grammar or a JSON schema",
}
_OURS = frozenset({"messages", "prompt", "stream", "stream_options", "model", "n", "max_tokens"})


@dataclass(slots=True, kw_only=True)
class Call:
    """One HTTP request to the server."""

    path: str
    body: str
    inputs: int  # slots that it takes
    input_field: str  # of the request, for errors about the prompt
    max_tokens: int  # 0: nothing is left to write


def build_call(item: Item, options: LlamacppOptions) -> Call:
    """Return the call for `item`.

    Raises:
        ItemFailed: a part of it is wrong, or cannot be done.
    """
    request, params = item.request, item.request.params
    _refuse_outputs(request.output)
    body = _engine_options(params)
    _add_sampling(body, params, options)
    _add_constraint(body, params)
    path, kind = _add_input(body, item, options)
    inputs = params.n or 1
    if inputs > options.slots:
        raise unsupported(
            "params.n", "n", f"{inputs} choices need as many slots, there are {options.slots}"
        )
    limit = item.max_tokens or params.max_tokens or options.max_tokens
    if item.continuation is not None:
        limit = max(0, limit - item.continuation.output_tokens)
    body.update(
        n=inputs,
        max_tokens=limit,
        stream=True,
        stream_options={"include_usage": True},
        return_progress=True,
        timings_per_token=True,
        reasoning_format="none",
    )
    try:
        text = json.dumps(body, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise invalid("params", f"not a finite number: {error}") from error
    return Call(path=path, body=text, inputs=inputs, input_field=kind, max_tokens=limit)


def _refuse_outputs(output: inference_pb2.OutputOptions) -> None:
    for name in ("token_ids", "omit_text"):
        if getattr(output, name):
            raise unsupported(f"output.{name}", name, "this engine sends no token ids")
    if output.HasField("logprobs"):
        raise unsupported("output.logprobs", "logprobs", "this engine sends no log probabilities")


def _engine_options(params: Params) -> dict[str, Any]:
    if not params.engine_options_json:
        return {}
    field = "params.engine_options_json"
    options = json_object(params.engine_options_json, field)
    taken = sorted(_OURS & options.keys())
    if taken:
        raise invalid(field, f"set by the request's own fields: {', '.join(taken)}")
    return options


def _add_sampling(body: dict[str, Any], params: Params, options: LlamacppOptions) -> None:
    for name, why in _CANNOT.items():
        if params.HasField(name) and getattr(params, name):
            raise unsupported(f"params.{name}", name, why)
    if params.stop_token_ids:
        raise unsupported(
            "params.stop_token_ids", "stop_token_ids", "llama.cpp stops at texts: use stop"
        )
    for name, theirs in _RENAMED.items():
        if params.HasField(name):
            body[theirs] = getattr(params, name)
    if params.HasField("top_k"):
        body["top_k"] = max(0, params.top_k)  # theirs is off at 0, ours at -1
    if params.HasField("seed"):
        body["seed"] = params.seed % (2**32 - 1)  # the largest value asks for a random one
    elif options.seed is not None:
        body["seed"] = options.seed
    if params.stop:
        body["stop"] = list(params.stop)
    if params.logit_bias:
        body["logit_bias"] = [[token, bias] for token, bias in sorted(params.logit_bias.items())]


def _add_constraint(body: dict[str, Any], params: Params) -> None:
    kind = params.WhichOneof("constraint")
    if kind == "grammar":
        body["grammar"] = params.grammar
    elif kind == "json_schema":
        body["json_schema"] = json_object(params.json_schema, "params.json_schema")
    elif kind == "json_object" and params.json_object:
        body["json_schema"] = {"type": "object"}


def _add_input(body: dict[str, Any], item: Item, options: LlamacppOptions) -> tuple[str, str]:
    """Put the prompt and the output so far into `body`; return path and kind of input."""
    request = item.request
    kind = request.WhichOneof("input")
    delivered = _delivered(item)
    if kind == "chat":
        body["messages"] = _messages(request.chat)
    elif kind == "text":
        prompt = request.text.prompt
        if not prompt:
            raise invalid("text.prompt", "the prompt is empty")
        if not options.apply_chat_template:
            body["prompt"] = prompt + delivered
            return "/v1/completions", kind
        body["messages"] = [{"role": "user", "content": prompt}]
    elif kind == "tokens":
        if not request.tokens.ids:
            raise invalid("tokens.ids", "there is no token")
        ids = list(request.tokens.ids)
        body["prompt"] = [*ids, delivered] if delivered else ids
        return "/v1/completions", kind
    elif kind is None:
        raise invalid("input", "there is no input")
    else:
        raise unsupported(kind, kind, f"this engine takes no input of kind {kind!r}")
    if delivered:
        _open_turn(body["messages"], delivered)
    return "/v1/chat/completions", kind


def _delivered(item: Item) -> str:
    """Return the output to go on from; refuse where going on would not be right."""
    continuation = item.continuation
    if continuation is None:
        return ""
    params = item.request.params
    if params.n > 1 or params.WhichOneof("constraint") is not None or continuation.reasoning:
        raise unsupported(
            "continuation",
            "continuation",
            "several choices, guided output and reasoning cannot be continued: start again",
        )
    return continuation.text


def _messages(chat: inference_pb2.ChatInput) -> list[dict[str, str]]:
    if chat.tools_json:
        raise unsupported("chat.tools_json", "tools", "this engine calls no tools")
    if not chat.messages:
        raise invalid("chat.messages", "there is no message")
    return [_message(i, message) for i, message in enumerate(chat.messages)]


def _message(index: int, message: inference_pb2.ChatMessage) -> dict[str, str]:
    place = f"chat.messages[{index}]"
    if message.tool_calls or message.role == "tool":
        raise unsupported(place, "tools", "this engine calls no tools")
    for j, part in enumerate(message.parts):
        kind = part.WhichOneof("part")
        if kind != "text":
            raise unsupported(
                f"{place}.parts[{j}]", f"{kind or 'empty'}_input", "this engine reads text only"
            )
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": "".join(part.text for part in message.parts)}


def _open_turn(messages: list[dict[str, str]], delivered: str) -> None:
    """Let the assistant's turn begin with what was delivered; the server leaves it open."""
    if messages[-1]["role"] == "assistant":  # the caller began the turn already
        messages[-1]["content"] += delivered
    else:
        messages.append({"role": "assistant", "content": delivered})
