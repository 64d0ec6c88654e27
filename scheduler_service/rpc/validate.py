"""Is this request one that may be accepted, and if not, which field is wrong?

Checks what the protocol's comments promise, before anything is queued. What only an engine can
know (the length of a prompt in its tokens) is the engine's to say, typed alike.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration as DurationProto

from batchyard.v1 import inference_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Duration
from scheduler_service.rpc import status

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_OPEN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_MAX_DURATION_S: Final = 315_576_000_000  # the protocol's Duration holds no more
_TENSOR_BYTES: Final = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2,
    "INT32": 4, "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What this server accepts at most."""

    max_request_bytes: int = 4 << 20
    max_message_bytes: int = 64 << 20
    max_json_depth: int = 64
    max_timeout: Duration = 24 * 3600 * 1_000_000_000
    max_detach_grace: Duration = 60 * 1_000_000_000
    max_outstanding: int = 10_000
    max_output_buffer: int = 1 << 20


class Refused(Exception):
    """The caller's fault: the field and what it must be."""

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        reason: Reason = Reason.INVALID_ARGUMENT,
        metadata: dict[str, str] | None = None,
        retry_after: Duration | None = None,
    ) -> None:
        super().__init__(message)
        self.error = status.error(
            reason, message, field=field, metadata=metadata, retry_after=retry_after
        )


def nanoseconds(length: DurationProto, field: str, *, zero: bool) -> Duration:
    """A non-negative length; `zero`: whether it may be nothing."""
    seconds, nanos = length.seconds, length.nanos
    if not (0 <= seconds <= _MAX_DURATION_S and 0 <= nanos < 1_000_000_000):
        raise Refused(f"{field} must be a non-negative duration", field=field)
    value = seconds * 1_000_000_000 + nanos
    if value == 0 and not zero:
        raise Refused(f"{field} must be above zero; leave it out for the default", field=field)
    return value


def check(message: inference_pb2.InferenceRequest, limits: Limits) -> None:
    """Raise Refused at the first field that is wrong. Durations are read by `nanoseconds`."""
    if message.request_id and not _ID.match(message.request_id):
        raise Refused("request_id must be 1..64 of A-Z a-z 0-9 . _ : -", field="request_id")
    if not 0 <= message.priority <= 10:
        raise Refused(
            f"priority is {message.priority}; it must be 1..10, 10 = most urgent, 0 = the default",
            field="priority",
        )
    if message.task_type and not _OPEN.match(message.task_type):
        raise Refused("task_type must be lower_snake_case, 1..64 characters", field="task_type")
    for name, most in (("model", 256), ("tenant", 64), ("user_id", 64), ("affinity_key", 128)):
        if len(getattr(message, name)) > most:
            raise Refused(f"{name} may have {most} characters at most", field=name)
    if len(message.trace.traceparent) > 64 if message.HasField("trace") else False:
        raise Refused("trace.traceparent must be 55 characters", field="trace.traceparent")
    if message.labels:
        _labels(message)
    if message.HasField("degrade"):
        _degrade(message.degrade)
    if message.HasField("failover"):
        _failover(message.failover)
    _INPUTS.get(message.WhichOneof("input") or "", _no_input)(message, limits)
    if message.HasField("params"):
        _params(message.params, limits)
    if message.HasField("output") and message.output.logprobs > 20:
        raise Refused("output.logprobs must be 0..20", field="output.logprobs")


def _labels(message: inference_pb2.InferenceRequest) -> None:
    if len(message.labels) > 16:
        raise Refused("at most 16 labels", field="labels")
    for key, value in message.labels.items():
        if not key or len(key) > 63 or len(value) > 256:
            raise Refused("a label's key has 1..63 characters, its value up to 256", field="labels")


def _degrade(policy: inference_pb2.DegradePolicy) -> None:
    if len(policy.models) > 8:
        raise Refused("at most 8 models to degrade to", field="degrade.models")
    for index, model in enumerate(policy.models):
        if not model or len(model) > 256:
            raise Refused("a model has 1..256 characters", field=f"degrade.models[{index}]")
    if not 0 <= policy.min_quality <= 1:
        raise Refused("degrade.min_quality must be 0..1", field="degrade.min_quality")


def _failover(policy: inference_pb2.FailoverPolicy) -> None:
    if policy.max_attempts > 10:
        raise Refused("failover.max_attempts must be 1..10, 0 = the default",
                      field="failover.max_attempts")  # fmt: skip
    if policy.resume_mode not in inference_pb2.ResumeMode.values():
        raise Refused(
            f"failover.resume_mode {policy.resume_mode} is not known here",
            field="failover.resume_mode",
        )


def _no_input(_message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    raise Refused("one of text, chat, tokens, tensors, embedding, raw must be given", field="input")


def _text(message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    if not message.text.prompt.strip():
        raise Refused("the prompt is empty", field="text.prompt")


def _chat(message: inference_pb2.InferenceRequest, limits: Limits) -> None:
    if not message.chat.messages:
        raise Refused("a chat has at least one message", field="chat.messages")
    for index, turn in enumerate(message.chat.messages):
        where = f"chat.messages[{index}]"
        if not turn.role:
            raise Refused("a message has a role", field=f"{where}.role")
        for at, part in enumerate(turn.parts):
            if part.WhichOneof("part") is None:
                raise Refused("a part is text, image, audio or file", field=f"{where}.parts[{at}]")
        texts = [p.text for p in turn.parts if p.WhichOneof("part") == "text"]
        if not turn.tool_calls and len(texts) == len(turn.parts) and not "".join(texts).strip():
            raise Refused("the message is empty", field=f"{where}.parts")
    if message.chat.tools_json:
        _json(message.chat.tools_json, "chat.tools_json", limits, list)


def _tokens(message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    if not message.tokens.ids:
        raise Refused("at least one token id", field="tokens.ids")


def _embedding(message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    texts = message.embedding.texts
    if not 1 <= len(texts) <= 2048:
        raise Refused("1..2048 texts", field="embedding.texts")
    for index, text in enumerate(texts):
        if not text.strip():
            raise Refused("the text is empty", field=f"embedding.texts[{index}]")


def _tensors(message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    if not message.tensors.tensors:
        raise Refused("at least one tensor", field="tensors.tensors")
    for index, tensor in enumerate(message.tensors.tensors):
        where = f"tensors.tensors[{index}]"
        if any(side < 0 for side in tensor.shape):
            raise Refused("sides are at least 0", field=f"{where}.shape")
        width = _TENSOR_BYTES.get(tensor.datatype)
        if width is None and tensor.datatype != "BYTES":
            raise Refused(f"datatype {tensor.datatype!r} is not known", field=f"{where}.datatype")
        if width is not None and math.prod(tensor.shape) * width != len(tensor.data):
            raise Refused(
                f"{list(tensor.shape)} of {tensor.datatype} are "
                f"{math.prod(tensor.shape) * width} bytes, not {len(tensor.data)}",
                field=f"{where}.data",
            )


def _raw(message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    if not message.raw.data:
        raise Refused("the body is empty", field="raw.data")


def _ref(_message: inference_pb2.InferenceRequest, _limits: Limits) -> None:
    raise Refused(
        "payload references are not built in this version; send the input itself",
        field="ref", reason=Reason.UNSUPPORTED_FEATURE, metadata={"feature": "payload_ref"},
    )  # fmt: skip


_INPUTS: Final = {
    "text": _text,
    "chat": _chat,
    "tokens": _tokens,
    "embedding": _embedding,
    "tensors": _tensors,
    "raw": _raw,
    "ref": _ref,
}

# name: (least, most, whether the least itself is allowed)
_RANGES: Final[dict[str, tuple[float, float, bool]]] = {
    "max_tokens": (1, 2**31 - 1, True),
    "min_tokens": (0, 2**31 - 1, True),
    "temperature": (0, 1e6, True),
    "top_p": (0, 1, False),
    "min_p": (0, 1, True),
    "frequency_penalty": (-2, 2, True),
    "presence_penalty": (-2, 2, True),
    "repetition_penalty": (0, 1e6, False),
    "n": (1, 128, True),
}


def _params(params: inference_pb2.GenerationParams, limits: Limits) -> None:
    for field, _ in params.ListFields():
        bounds = _RANGES.get(field.name)
        if bounds is not None:
            _in_range(getattr(params, field.name), bounds, f"params.{field.name}")
    if params.HasField("top_k") and params.top_k < 1 and params.top_k != -1:
        raise Refused("params.top_k must be 1 or more, or -1 for off", field="params.top_k")
    if params.HasField("max_tokens") and params.min_tokens > params.max_tokens:
        raise Refused("params.min_tokens is above max_tokens", field="params.min_tokens")
    if len(params.stop) > 16 or "" in params.stop:
        raise Refused("at most 16 stop strings, none empty", field="params.stop")
    for bias in params.logit_bias.values():
        _in_range(bias, (-100, 100, True), "params.logit_bias")
    if params.json_schema:
        _json(params.json_schema, "params.json_schema", limits, (dict, bool))
    if params.engine_options_json:
        _json(params.engine_options_json, "params.engine_options_json", limits, dict)


def _in_range(value: float, bounds: tuple[float, float, bool], field: str) -> None:
    least, most, closed = bounds
    if not math.isfinite(value) or value > most or value < least or (value == least and not closed):
        edge = "" if closed else "above "
        raise Refused(f"{field} is {value}; it must be {edge}{least:g}..{most:g}", field=field)


def _json(text: str, field: str, limits: Limits, kind: Any) -> None:
    """Valid JSON of the kind, not nested too deeply (counted before it is parsed)."""
    if _json_depth(text) > limits.max_json_depth:
        raise Refused(f"{field} is nested deeper than {limits.max_json_depth} levels", field=field)
    try:
        parsed = json.loads(text)
    except ValueError as fault:
        raise Refused(f"{field} is no JSON: {fault}", field=field) from None
    if not isinstance(parsed, kind):
        raise Refused(f"{field} has the wrong JSON type", field=field)


def _json_depth(text: str) -> int:
    """The deepest nesting of brackets outside strings."""
    depth = deepest = 0
    inside = escaped = False
    for char in text:
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest
