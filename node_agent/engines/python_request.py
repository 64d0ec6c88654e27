"""What does a user's function get, and what may it return?

It gets a list of `Request` and returns a list of answers of the same length and order. An answer is

    str                      text
    list of float            a vector; a list of such, one for each of `texts`
    dict of numpy arrays     tensors, by name
    bytes, or any other dict or list    a body: bytes as they are, else as JSON
    an exception             this request fails, the others do not: a ValueError is the caller's
                             fault (INVALID_ARGUMENT), any other is the engine's

A function that raises is called again with each request alone, so that one bad request fails alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.python_tensors import read_tensors, write_tensors

_COMPLETE = types_pb2.FINISH_REASON_COMPLETE


@dataclass(slots=True, frozen=True, kw_only=True)
class Request:
    """One request. What it does not have is empty."""

    model: str
    text: str = ""  # the prompt; of a chat, the last turn
    messages: Sequence[dict[str, str]] = ()  # of a chat: role and content
    texts: Sequence[str] = ()  # to embed
    token_ids: Sequence[int] = ()
    tensors: dict[str, Any] = field(default_factory=dict)  # numpy arrays
    body: bytes = b""
    content_type: str = ""  # of the body
    params: dict[str, Any] = field(default_factory=dict)  # those that were set
    labels: dict[str, str] = field(default_factory=dict)
    task_type: str = ""


def to_request(model: str, request: inference_pb2.InferenceRequest) -> Request:
    """Return what the function gets for `request`."""
    params: dict[str, Any] = {
        name.name: value if isinstance(value, int | float | str | bool) else list(value)
        for name, value in request.params.ListFields()
        if name.name != "logit_bias"
    }
    if request.params.logit_bias:
        params["logit_bias"] = dict(request.params.logit_bias)
    messages = [
        {"role": turn.role, "content": "".join(part.text for part in turn.parts)}
        for turn in request.chat.messages
    ]
    return Request(
        model=model,
        text=request.text.prompt or (messages[-1]["content"] if messages else ""),
        messages=messages,
        texts=list(request.embedding.texts),
        token_ids=list(request.tokens.ids),
        tensors=read_tensors(request.tensors.tensors),
        body=request.raw.data,
        content_type=request.raw.content_type,
        params=params,
        labels=dict(request.labels),
        task_type=request.task_type,
    )


def to_outputs(answer: Any) -> list[inference_pb2.Output]:
    """Return the outputs that an answer stands for.

    Raises:
        TypeError: nothing can be made of it.
    """
    if isinstance(answer, str):
        return [inference_pb2.Output(text=answer, finish_reason=types_pb2.FINISH_REASON_STOP)]
    if isinstance(answer, bytes):
        raw = inference_pb2.RawOutput(content_type="application/octet-stream", data=answer)
        return [inference_pb2.Output(raw=raw, finish_reason=_COMPLETE)]
    answer = _plain(answer)
    if _is_vector(answer):
        return [inference_pb2.Output(embedding=answer, finish_reason=_COMPLETE)]
    if isinstance(answer, list) and answer and all(map(_is_vector, answer)):
        return [
            inference_pb2.Output(index=i, embedding=vector, finish_reason=_COMPLETE)
            for i, vector in enumerate(answer)
        ]
    if isinstance(answer, dict) and answer and all(hasattr(v, "dtype") for v in answer.values()):
        return [inference_pb2.Output(tensors=write_tensors(answer), finish_reason=_COMPLETE)]
    data = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
    raw = inference_pb2.RawOutput(content_type="application/json", data=data)
    return [inference_pb2.Output(raw=raw, finish_reason=_COMPLETE)]


def _plain(answer: object) -> Any:
    """Arrays as lists; the rest as it is."""
    to_list = getattr(answer, "tolist", None)
    return to_list() if to_list is not None else answer


def _is_vector(answer: Any) -> TypeGuard[list[float]]:
    return isinstance(answer, list) and bool(answer) and all(type(x) is float for x in answer)
