"""Requests that must be refused: (name, what is wrong with it, the field that the refusal names).

Fields are relative to the InferenceRequest. `every_float`, `every_string` and `every_enum` walk the
descriptor, so a field that a later version adds is here without anyone thinking of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2 as pb
from tests.integration.scheduler.harness import MODEL, prompt

BAD_UTF8 = b"\xc3\x28"
Path = tuple[FieldDescriptor, ...]


def _request(**fields: Any) -> pb.InferenceRequest:
    return pb.InferenceRequest(model=MODEL, **fields)


def _chat(*turns: pb.ChatMessage, **fields: Any) -> pb.InferenceRequest:
    return _request(chat=pb.ChatInput(messages=turns, **fields))


def _tensor(**fields: Any) -> pb.InferenceRequest:
    given = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": b"\0" * 16, **fields}
    return _request(tensors=pb.TensorInput(tensors=[pb.Tensor(**given)]))


def _params(**fields: Any) -> pb.InferenceRequest:
    return prompt(params=pb.GenerationParams(**fields))


def _turn(role: str = "user", *parts: pb.ContentPart, **fields: Any) -> pb.ChatMessage:
    return pb.ChatMessage(role=role, parts=parts, **fields)


SAID = pb.ContentPart(text="hi")
DEEP = "[" * 65 + "]" * 65
FAR = Duration(seconds=315_576_000_001)

NO_INPUT = {
    "none at all": (_request(), "input"),
    "empty prompt": (prompt(""), "text.prompt"),
    "blank prompt": (prompt(" \n\t　"), "text.prompt"),
    "no messages": (_chat(), "chat.messages"),
    "no parts": (_chat(_turn()), "chat.messages[0].parts"),
    "blank turn": (
        _chat(_turn("user", SAID), _turn("user", pb.ContentPart(text=" "))),
        "chat.messages[1].parts",
    ),
    "a part without a kind": (
        _chat(_turn("user", SAID, pb.ContentPart())), "chat.messages[0].parts[1]",
    ),
    "no token ids": (_request(tokens=pb.TokenInput()), "tokens.ids"),
    "no texts": (_request(embedding=pb.EmbeddingInput()), "embedding.texts"),
    "an empty text": (
        _request(embedding=pb.EmbeddingInput(texts=["a", ""])), "embedding.texts[1]",
    ),
    "a blank text": (_request(embedding=pb.EmbeddingInput(texts=["  "])), "embedding.texts[0]"),
    "2049 texts": (_request(embedding=pb.EmbeddingInput(texts=["a"] * 2049)), "embedding.texts"),
    "no tensors": (_request(tensors=pb.TensorInput()), "tensors.tensors"),
    "an empty body": (_request(raw=pb.RawInput(content_type="application/json")), "raw.data"),
}  # fmt: skip

SCALARS = {
    "no model": (pb.InferenceRequest(text=pb.TextInput(prompt="hi")), "model"),
    "a long model": (prompt(model="m" * 257), "model"),
    "priority 11": (prompt(priority=11), "priority"),
    "priority -1": (prompt(priority=-1), "priority"),
    "priority 2**31-1": (prompt(priority=2**31 - 1), "priority"),
    "task type in capitals": (prompt(task_type="Summary"), "task_type"),
    "task type with a newline": (prompt(task_type="qa\n"), "task_type"),
    "a long task type": (prompt(task_type="a" * 65), "task_type"),
    "a long tenant": (prompt(tenant="t" * 65), "tenant"),
    "a long user": (prompt(user_id="u" * 65), "user_id"),
    "a long affinity key": (prompt(affinity_key="k" * 129), "affinity_key"),
    "zero timeout": (prompt(timeout=Duration()), "timeout"),
    "negative timeout": (prompt(timeout=Duration(seconds=-1)), "timeout"),
    "timeout with odd nanos": (prompt(timeout=Duration(seconds=1, nanos=2_000_000_000)), "timeout"),
    "timeout with negative nanos": (prompt(timeout=Duration(seconds=1, nanos=-1)), "timeout"),
    "absurd timeout": (prompt(timeout=FAR), "timeout"),
    "negative max_wait": (prompt(max_wait=Duration(nanos=-1)), "max_wait"),
    "absurd max_wait": (prompt(max_wait=FAR), "max_wait"),
    "17 labels": (prompt(labels={f"k{n}": "" for n in range(17)}), "labels"),
    "a label without a key": (prompt(labels={"": "x"}), "labels"),
    "a long label key": (prompt(labels={"k" * 64: "x"}), "labels"),
    "a long label": (prompt(labels={"k": "x" * 257}), "labels"),
    "a long traceparent": (prompt(trace={"traceparent": "0" * 65}), "trace.traceparent"),
    "a negative hint": (
        prompt(cost_hint=pb.CostHint(service_time=Duration(seconds=-5))), "cost_hint.service_time",
    ),
    "21 logprobs": (prompt(output=pb.OutputOptions(logprobs=21)), "output.logprobs"),
    "a negative interval": (
        prompt(output=pb.OutputOptions(min_delta_interval=Duration(seconds=-1))),
        "output.min_delta_interval",
    ),
    "nine models to degrade to": (
        prompt(degrade=pb.DegradePolicy(models=["m"] * 9)), "degrade.models",
    ),
    "an empty model to degrade to": (
        prompt(degrade=pb.DegradePolicy(models=["m", ""])), "degrade.models[1]",
    ),
    "degrade after a negative time": (
        prompt(degrade=pb.DegradePolicy(after=Duration(seconds=-1))), "degrade.after",
    ),
    "11 attempts": (
        prompt(failover=pb.FailoverPolicy(max_attempts=11)), "failover.max_attempts",
    ),
}  # fmt: skip

REQUEST_IDS = {
    "1 MB": "x" * 1_000_000,
    "10 kB": "x" * 10_000,
    "65 characters": "x" * 65,
    "newline": "a\nb",
    "trailing newline": "a\n",
    "NUL": "a\0b",
    "non-ASCII": "请求",
    "blank": "a b",
    "slash": "a/b",
}

PARAMS = {
    **{
        f"max_tokens {n}": (_params(max_tokens=n), "params.max_tokens")
        for n in (0, 2**31, 2**32 - 1)
    },
    "min above max": (_params(min_tokens=9, max_tokens=8), "params.min_tokens"),
    "no choices": (_params(n=0), "params.n"),
    "129 choices": (_params(n=129), "params.n"),
    "top_k 0": (_params(top_k=0), "params.top_k"),
    "top_k -2": (_params(top_k=-2), "params.top_k"),
    "top_p 0": (_params(top_p=0.0), "params.top_p"),
    "top_p -0.0": (_params(top_p=-0.0), "params.top_p"),
    "top_p above 1": (_params(top_p=1.01), "params.top_p"),
    "temperature below 0": (_params(temperature=-0.01), "params.temperature"),
    "penalty above 2": (_params(presence_penalty=2.1), "params.presence_penalty"),
    "17 stops": (_params(stop=["a"] * 17), "params.stop"),
    "an empty stop": (_params(stop=["a", ""]), "params.stop"),
    "a bias above 100": (_params(logit_bias={1: 101.0}), "params.logit_bias"),
    "an empty regex": (_params(regex=""), "params.regex"),
    "an empty grammar": (_params(grammar=""), "params.grammar"),
    "an empty schema": (_params(json_schema=""), "params.json_schema"),
    "a schema that is no JSON": (_params(json_schema="{"), "params.json_schema"),
    "a schema that is a list": (_params(json_schema="[]"), "params.json_schema"),
    "a deep schema": (_params(json_schema='{"a":' * 65 + "1" + "}" * 65), "params.json_schema"),
    "options that are no object": (
        _params(engine_options_json="[1]"), "params.engine_options_json",
    ),
    "options with NaN": (
        _params(engine_options_json='{"x": NaN}'), "params.engine_options_json",
    ),
    "options with Infinity": (
        _params(engine_options_json='{"x": -Infinity}'), "params.engine_options_json",
    ),
    "options 200,000 levels deep": (
        _params(engine_options_json='{"a":' * 200_000), "params.engine_options_json",
    ),
    "tools that are no list": (_chat(_turn("user", SAID), tools_json="{}"), "chat.tools_json"),
    "deep tools": (_chat(_turn("user", SAID), tools_json=DEEP), "chat.tools_json"),
}  # fmt: skip

INPUTS = {
    "a turn without a role": (_chat(_turn("", SAID)), "chat.messages[0].role"),
    "an unknown role": (_chat(_turn("robot" * 9999, SAID)), "chat.messages[0].role"),
    "a negative side": (_tensor(shape=[-1, -4]), "tensors.tensors[0].shape"),
    "too little data": (_tensor(data=b"\0" * 15), "tensors.tensors[0].data"),
    "too much data": (_tensor(data=b"\0" * 17), "tensors.tensors[0].data"),
    "a huge shape": (_tensor(shape=[2**62] * 64), "tensors.tensors[0].data"),
    "too many sides": (_tensor(shape=[2**62] * 65), "tensors.tensors[0].shape"),
    "an unknown datatype": (_tensor(datatype="FP12" * 9999), "tensors.tensors[0].datatype"),
    "BYTES cut off": (
        _tensor(datatype="BYTES", shape=[1], data=b"\5\0\0\0abc"), "tensors.tensors[0].data",
    ),
    "too few BYTES": (
        _tensor(datatype="BYTES", shape=[2], data=b"\3\0\0\0abc"), "tensors.tensors[0].data",
    ),
    "the second tensor": (
        _request(
            tensors=pb.TensorInput(
                tensors=[pb.Tensor(datatype="BOOL", shape=[1], data=b"\1"), pb.Tensor()]
            )
        ),
        "tensors.tensors[1].datatype",
    ),
    "a picture without data": (
        _chat(_turn("user", pb.ContentPart(image=pb.PayloadRef(media_type="image/png")))),
        "chat.messages[0].parts[0].image",
    ),
    "a short digest": (
        _chat(_turn("user", pb.ContentPart(file=pb.PayloadRef(inline=b"x", sha256=b"y")))),
        "chat.messages[0].parts[0].file.sha256",
    ),
}  # fmt: skip

ALL = {
    **NO_INPUT,
    **SCALARS,
    **PARAMS,
    **INPUTS,
    **{f"request id: {n}": (prompt(request_id=v), "request_id") for n, v in REQUEST_IDS.items()},
}

UNBUILT = {
    "a reference": (_request(ref=pb.PayloadRef(uri="https://example.org/x")), "ref"),
    "a picture elsewhere": (
        _chat(_turn("user", pb.ContentPart(image=pb.PayloadRef(uri="file:///etc/passwd")))),
        "chat.messages[0].parts[0].image.uri",
    ),
}


# Every field of a kind, found by walking the descriptor.


def paths(kind: int, root: Descriptor = pb.InferenceRequest.DESCRIPTOR) -> list[Path]:
    """All fields of that type below the request, each with the way to it."""
    return list(_walk(root, (), kind))


def _walk(descriptor: Descriptor, before: Path, kind: int) -> Iterator[Path]:
    for field in descriptor.fields:
        here = (*before, field)
        if field.type == kind:
            yield here
        elif field.type == FieldDescriptor.TYPE_MESSAGE and len(before) < 8:
            yield from _walk(field.message_type, here, kind)


def dotted(path: Path) -> str:
    """How a refusal names the first such field."""
    return ".".join(f"{field.name}[0]" if field.is_repeated else field.name for field in path)


def _put(path: Path, value: bytes) -> bytes:
    """Serialise nothing but that field."""
    for field in reversed(path):
        wire = _WIRE.get(field.type, 2)
        if wire == 2:
            value = varint(len(value)) + value
        value = varint(field.number << 3 | wire) + value
    return value


_WIRE = {
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_ENUM: 0,
}


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def every_string() -> dict[str, bytes]:
    """A request with bad UTF-8 in this string field, for each that there is, by its path."""
    return {
        dotted(path): _put(path, BAD_UTF8) + prompt(request_id="x").SerializeToString()
        for path in paths(FieldDescriptor.TYPE_STRING)
    }


def every_enum() -> dict[str, bytes]:
    """A request with an unknown number in this enum field, for each."""
    return {
        dotted(path): _put(path, varint(99)) + prompt().SerializeToString()
        for path in paths(FieldDescriptor.TYPE_ENUM)
    }


def every_float() -> dict[tuple[str, float], bytes]:
    """A request with this value in this floating-point field, for each."""
    found = {}
    for path in paths(FieldDescriptor.TYPE_FLOAT) + paths(FieldDescriptor.TYPE_DOUBLE):
        for value in (math.nan, math.inf, -math.inf, 1e308, 3e38, -3e38):
            data = _put(path, _bits(path[-1], value)) + prompt().SerializeToString()
            found[dotted(path), value] = data
    return found


def _bits(field: FieldDescriptor, value: float) -> bytes:

    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return struct.pack("<d", value)
    return struct.pack("<f", math.inf if value == 1e308 else value)
