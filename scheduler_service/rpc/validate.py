"""Is this request one that may be accepted, and if not, which field is wrong?

Checks what the protocol's comments promise, before anything is queued: one check per field, in a
table, so that a field which is not set costs nothing. What only an engine can know (the length of
a prompt in its tokens) is the engine's to say, typed alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration as DurationProto

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Duration
from scheduler_service.rpc import json_text, status, tensors

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_OPEN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_MAX_DURATION_S: Final = 315_576_000_000  # the protocol's Duration holds no more


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

    def within(self, name: str) -> None:
        """Name the field as seen from the message in whose field `name` it is."""
        self.error.field = f"{name}.{self.error.field}".rstrip(".")


def nanoseconds(length: DurationProto, field: str, *, zero: bool) -> Duration:
    """A non-negative length; `zero`: whether it may be nothing."""
    seconds, nanos = length.seconds, length.nanos
    if not (0 <= seconds <= _MAX_DURATION_S and 0 <= nanos < 1_000_000_000):
        raise Refused(f"{field} must be a non-negative duration", field=field)
    value = seconds * 1_000_000_000 + nanos
    if value == 0 and not zero:
        raise Refused(f"{field} must be above zero; leave it out for the default", field=field)
    return value


def check(message: inference_pb2.InferenceRequest, limits: Limits) -> dict[str, Any]:
    """The fields that are set, by name.

    Raises:
        Refused: at the first field that is wrong. `timeout`, `max_wait` and `degrade.after` are
            left to who reads them, by `nanoseconds`.
    """
    fields = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name
        fields[name] = value
        checks = _CHECKS.get(name)
        if checks is not None:
            checks(value, limits)
    if message.WhichOneof("input") is None:
        raise Refused(f"one of {', '.join(_INPUTS)} must be given", field="input")
    return fields


def check_fields(fields: Mapping[str, Any], limits: Limits) -> None:
    """Check some fields by name; the others are known to be good.

    Raises:
        Refused: at the first that is wrong.
    """
    for name, value in fields.items():
        _CHECKS[name](value, limits)


def is_sound(request_id: str, prompt: str) -> bool:
    """Whether there is nothing against these; empty: there is no id."""
    named = not request_id or _ID.match(request_id) is not None
    return named and prompt != "" and not prompt.isspace()


def _request_id(value: str, _limits: Limits) -> None:
    if not _ID.match(value):
        raise Refused("request_id must be 1..64 of A-Z a-z 0-9 . _ : -", field="request_id")


def _priority(value: int, _limits: Limits) -> None:
    if not 0 <= value <= 10:
        raise Refused(
            f"priority is {value}; it must be 1..10, 10 = most urgent, 0 = the default",
            field="priority",
            metadata={"value": str(value)},
        )


def _task_type(value: str, _limits: Limits) -> None:
    if not _OPEN.match(value):
        raise Refused("task_type must be lower_snake_case, 1..64 characters", field="task_type")


def _at_most(name: str, most: int) -> Callable[[str, Limits], None]:
    def checks(value: str, _limits: Limits) -> None:
        if len(value) > most:
            raise Refused(f"{name} may have {most} characters at most", field=name)

    return checks


def _trace(trace: types_pb2.TraceContext, _limits: Limits) -> None:
    if len(trace.traceparent) > 64:
        raise Refused("trace.traceparent must be 55 characters", field="trace.traceparent")


def _labels(labels: Any, _limits: Limits) -> None:
    if len(labels) > 16:
        raise Refused("at most 16 labels", field="labels")
    for key, value in labels.items():
        if not key or len(key) > 63 or len(value) > 256:
            raise Refused("a label's key has 1..63 characters, its value up to 256", field="labels")


def _degrade(policy: inference_pb2.DegradePolicy, _limits: Limits) -> None:
    if len(policy.models) > 8:
        raise Refused("at most 8 models to degrade to", field="degrade.models")
    for index, model in enumerate(policy.models):
        if not model or len(model) > 256:
            raise Refused("a model has 1..256 characters", field=f"degrade.models[{index}]")
    _in_range(policy.min_quality, (0, 1, True), "degrade.min_quality")


def _failover(policy: inference_pb2.FailoverPolicy, _limits: Limits) -> None:
    if policy.max_attempts > 10:
        raise Refused("failover.max_attempts must be 1..10, 0 = the default",
                      field="failover.max_attempts")  # fmt: skip
    if policy.resume_mode not in inference_pb2.ResumeMode.values():
        raise Refused(
            f"failover.resume_mode {policy.resume_mode} is not known here",
            field="failover.resume_mode",
            metadata={"value": str(policy.resume_mode)},
        )


def _cost_hint(hint: inference_pb2.CostHint, _limits: Limits) -> None:
    if hint.HasField("service_time"):
        nanoseconds(hint.service_time, "cost_hint.service_time", zero=True)


def _text(text: inference_pb2.TextInput, _limits: Limits) -> None:
    prompt = text.prompt
    if not prompt or prompt.isspace():
        raise Refused("the prompt is empty", field="text.prompt")


def _chat(chat: inference_pb2.ChatInput, limits: Limits) -> None:
    if not chat.messages:
        raise Refused("a chat has at least one message", field="chat.messages")
    for index, turn in enumerate(chat.messages):
        _turn(turn, f"chat.messages[{index}]")
    if chat.tools_json:
        _json(chat.tools_json, "chat.tools_json", limits, list)


def _turn(turn: inference_pb2.ChatMessage, where: str) -> None:
    if turn.role not in _ROLES:
        raise Refused(
            f"role must be one of {', '.join(sorted(_ROLES))}; it is {turn.role[:64]!r}",
            field=f"{where}.role",
            metadata={"value": turn.role[:64]},
        )
    said = bool(turn.tool_calls)
    for at, part in enumerate(turn.parts):
        kind = part.WhichOneof("part")
        if kind is None:
            raise Refused("a part is text, image, audio or file", field=f"{where}.parts[{at}]")
        if kind == "text":
            said = said or bool(part.text.strip())
        else:
            _payload(getattr(part, kind), f"{where}.parts[{at}].{kind}")
            said = True
    if not said:
        raise Refused("the message is empty", field=f"{where}.parts")


def _payload(payload: inference_pb2.PayloadRef, where: str) -> None:
    """Data of a part is inline: an operator's list of hosts to fetch from is not built yet."""
    kind = payload.WhichOneof("source")
    if kind == "uri":
        raise Refused(
            "payload references are not built in this version; send the data inline",
            field=f"{where}.uri", reason=Reason.UNSUPPORTED_FEATURE,
            metadata={"feature": "payload_ref"},
        )  # fmt: skip
    if not payload.inline:
        raise Refused("there is no data", field=where)
    if len(payload.sha256) not in (0, 32):
        raise Refused("sha256 has 32 bytes, or none", field=f"{where}.sha256")


def _tokens(tokens: inference_pb2.TokenInput, _limits: Limits) -> None:
    if not tokens.ids:
        raise Refused("at least one token id", field="tokens.ids")


def _embedding(embedding: inference_pb2.EmbeddingInput, _limits: Limits) -> None:
    if not 1 <= len(embedding.texts) <= 2048:
        raise Refused("1..2048 texts", field="embedding.texts")
    for index, text in enumerate(embedding.texts):
        if not text or text.isspace():
            raise Refused("the text is empty", field=f"embedding.texts[{index}]")


def _tensors(given: inference_pb2.TensorInput, _limits: Limits) -> None:
    if not given.tensors:
        raise Refused("at least one tensor", field="tensors.tensors")
    for index, tensor in enumerate(given.tensors):
        fault = tensors.fault(tensor)
        if fault is not None:
            raise Refused(fault[1], field=f"tensors.tensors[{index}].{fault[0]}")


def _raw(raw: inference_pb2.RawInput, _limits: Limits) -> None:
    if not raw.data:
        raise Refused("the body is empty", field="raw.data")


def _ref(_payload: inference_pb2.PayloadRef, _limits: Limits) -> None:
    raise Refused(
        "payload references are not built in this version; send the input itself",
        field="ref", reason=Reason.UNSUPPORTED_FEATURE, metadata={"feature": "payload_ref"},
    )  # fmt: skip


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
    for descriptor, value in params.ListFields():
        name = descriptor.name
        bounds = _RANGES.get(name)
        if bounds is not None:
            _in_range(value, bounds, f"params.{name}")
        elif name in _PARAMS:
            _PARAMS[name](value, limits)
    if (
        params.min_tokens
        and params.HasField("max_tokens")
        and params.min_tokens > params.max_tokens
    ):
        raise Refused("params.min_tokens is above max_tokens", field="params.min_tokens")


def _top_k(value: int, _limits: Limits) -> None:
    if value < 1 and value != -1:
        raise Refused("params.top_k must be 1 or more, or -1 for off", field="params.top_k")


def _stop(stop: Any, _limits: Limits) -> None:
    if len(stop) > 16 or "" in stop:
        raise Refused("at most 16 stop strings, none empty", field="params.stop")


def _logit_bias(biases: Any, _limits: Limits) -> None:
    for bias in biases.values():
        _in_range(bias, (-100, 100, True), "params.logit_bias")


def _constraint(name: str) -> Callable[[str, Limits], None]:
    def checks(value: str, _limits: Limits) -> None:
        if not value:
            raise Refused(f"params.{name} is empty; leave it out", field=f"params.{name}")

    return checks


def _json_schema(text: str, limits: Limits) -> None:
    _json(text, "params.json_schema", limits, (dict, bool))


def _engine_options(text: str, limits: Limits) -> None:
    _json(text, "params.engine_options_json", limits, dict)


_PARAMS: Final[dict[str, Callable[[Any, Limits], None]]] = {
    "top_k": _top_k,
    "stop": _stop,
    "logit_bias": _logit_bias,
    "json_schema": _json_schema,
    "regex": _constraint("regex"),
    "grammar": _constraint("grammar"),
    "engine_options_json": _engine_options,
}


def _output(output: inference_pb2.OutputOptions, _limits: Limits) -> None:
    if output.logprobs > 20:
        raise Refused("output.logprobs must be 0..20", field="output.logprobs")
    if output.HasField("min_delta_interval"):
        nanoseconds(output.min_delta_interval, "output.min_delta_interval", zero=True)


_INPUTS: Final = ("text", "chat", "tokens", "tensors", "embedding", "raw")
_CHECKS: Final[dict[str, Callable[[Any, Limits], None]]] = {
    "request_id": _request_id,
    "model": _at_most("model", 256),
    "priority": _priority,
    "task_type": _task_type,
    "tenant": _at_most("tenant", 64),
    "user_id": _at_most("user_id", 64),
    "degrade": _degrade,
    "failover": _failover,
    "affinity_key": _at_most("affinity_key", 128),
    "trace": _trace,
    "labels": _labels,
    "cost_hint": _cost_hint,
    "text": _text,
    "chat": _chat,
    "tokens": _tokens,
    "tensors": _tensors,
    "embedding": _embedding,
    "raw": _raw,
    "ref": _ref,
    "params": _params,
    "output": _output,
}


def _in_range(value: float, bounds: tuple[float, float, bool], field: str) -> None:
    least, most, closed = bounds
    # Written so that NaN, for which every comparison is false, is refused.
    if not (least <= value <= most) or (value == least and not closed):
        wanted = f"{least:g}..{most:.10g}" if closed else f"above {least:g}, at most {most:.10g}"
        raise Refused(
            f"{field} is {value}; it must be {wanted}",
            field=field, metadata={"value": str(value)},
        )  # fmt: skip


def _json(text: str, field: str, limits: Limits, kind: type | tuple[type, ...]) -> None:
    fault = json_text.fault(text, kind, limits.max_json_depth)
    if fault:
        raise Refused(f"{field} {fault}", field=field)
