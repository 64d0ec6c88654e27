"""What does a caller's message mean to the core? From bytes to `core.types.Request`, defaults
filled in; the bytes themselves stay as they came, for the dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from batchyard.v1 import inference_pb2
from scheduler_service.core.outcomes import Reason, ResumeMode
from scheduler_service.core.types import NEVER, Instant, Request, Traits
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.rpc import faults
from scheduler_service.rpc.validate import Limits, Refused, check, nanoseconds

_InferenceRequest: Final = inference_pb2.InferenceRequest
_INPUT_NUMBER: Final = {
    field.name: field.number
    for field in _InferenceRequest.DESCRIPTOR.oneofs_by_name["input"].fields
}
# Not part of what a request id stands for: ids, time, trace and hints.
_NOT_HASHED: Final = (
    "request_id", "tenant", "user_id", "timeout", "affinity_key", "trace", "cost_hint",
)  # fmt: skip

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Parsed:
    """A call, ready for the core, and what the edge keeps of it."""

    request: Request
    message: inference_pb2.InferenceRequest
    client_id: bool  # whether the client chose the request id


def parse(kind: type[M], data: bytes, *, prefix: str = "") -> M:
    """The message, or Refused naming the field that does not parse."""
    try:
        return kind.FromString(data)
    except DecodeError:
        where = faults.locate(kind.DESCRIPTOR, data, prefix=prefix)
        what = f"{where} is no valid UTF-8, or broken" if where else "the message does not parse"
        raise Refused(what, field=where) from None


class Converter:
    """Turns calls into requests by the configured limits, task types and aliases."""

    def __init__(
        self,
        *,
        limits: Limits,
        task_types: TaskTypes,
        aliases: dict[str, str],
        max_attempts: int,
    ) -> None:
        self.limits = limits
        self._task_types = task_types
        self._aliases = aliases
        self._max_attempts = max_attempts

    def convert(
        self, data: bytes, *, rid: int, now: Instant, rpc_deadline: Instant, stream: bool
    ) -> Parsed:
        """Parse, check, and fill in defaults.

        Raises:
            Refused: naming the field, relative to the InferenceRequest.
        """
        limits = self.limits
        if len(data) > limits.max_request_bytes:
            raise Refused(
                f"the request has {len(data)} bytes; at most {limits.max_request_bytes}",
                reason=Reason.REQUEST_TOO_LARGE,
                metadata={"limitBytes": str(limits.max_request_bytes)},
            )
        message = parse(_InferenceRequest, data)
        check(message, limits)
        request = self._request(message, rid, now, rpc_deadline)
        request.stream = stream
        request.size_bytes = len(data)
        return Parsed(request, message, bool(message.request_id))

    def _request(
        self,
        message: inference_pb2.InferenceRequest,
        rid: int,
        now: Instant,
        rpc_deadline: Instant,
    ) -> Request:
        task_type, defaults = self._task_types.resolve(message.task_type)
        model = message.model or defaults.model
        if not model:
            raise Refused(
                f"no model given, and task type {task_type!r} has no default", field="model"
            )
        kind = message.WhichOneof("input") or ""
        request = Request(
            rid,
            message.request_id or f"r-{rid:x}",
            self._aliases.get(model, model),
            message.priority or defaults.priority,
            now,
        )
        request.tenant = message.tenant
        request.user_id = message.user_id
        request.task_type = task_type
        request.affinity_key = message.affinity_key
        request.max_attempts = self._max_attempts
        request.output_tokens = defaults.output_tokens
        request.traits = Traits(input_kind=_INPUT_NUMBER[kind])
        self._times(message, request, now, rpc_deadline, defaults)
        request.degrade = defaults.degrade
        if message.HasField("degrade"):
            self._degrade(message.degrade, request)
        if message.HasField("failover"):
            request.max_attempts = message.failover.max_attempts or self._max_attempts
            request.resume_mode = ResumeMode(message.failover.resume_mode)
        if message.HasField("params"):
            _apply_params(message.params, request, request.traits)
        if message.HasField("cost_hint") and message.cost_hint.expected_output_tokens:
            request.output_tokens = message.cost_hint.expected_output_tokens
        _apply_input(message, kind, request, request.traits)
        return request

    def _times(
        self,
        message: inference_pb2.InferenceRequest,
        request: Request,
        now: Instant,
        rpc_deadline: Instant,
        defaults: Any,
    ) -> None:
        """Budgets become instants here, on arrival; the earlier of the two deadlines counts."""
        timeout = defaults.timeout
        if message.HasField("timeout"):
            timeout = nanoseconds(message.timeout, "timeout", zero=False)
        if timeout < NEVER:
            request.deadline = now + min(timeout, self.limits.max_timeout)
        request.deadline = min(request.deadline, rpc_deadline)
        request.max_wait = defaults.max_wait
        if message.HasField("max_wait"):
            request.max_wait = min(NEVER, nanoseconds(message.max_wait, "max_wait", zero=True))

    def _degrade(self, policy: inference_pb2.DegradePolicy, request: Request) -> None:
        request.degrade = tuple(
            dict.fromkeys(self._aliases.get(model, model) for model in policy.models)
        )
        if policy.HasField("after"):
            after = nanoseconds(policy.after, "degrade.after", zero=True)
            request.degrade_after = min(NEVER, after)


def _apply_params(params: inference_pb2.GenerationParams, request: Request, traits: Traits) -> None:
    traits.params = params.SerializeToString(deterministic=True)
    request.output_tokens = params.max_tokens or request.output_tokens
    choices = params.n or 1
    request.inputs = choices
    request.continuable = choices == 1 and params.WhichOneof("constraint") is None


def _apply_input(
    message: inference_pb2.InferenceRequest, kind: str, request: Request, traits: Traits
) -> None:
    """How long it is, and how many inputs it counts for."""
    if kind == "text":
        traits.length = len(message.text.prompt)
    elif kind == "tokens":
        traits.length = request.prompt_tokens = len(message.tokens.ids)
    elif kind == "embedding":
        traits.length = max(len(text) for text in message.embedding.texts)
        traits.dimensions = message.embedding.dimensions
        request.inputs = len(message.embedding.texts)
        request.continuable = False
    elif kind == "tensors":
        tensors = message.tensors.tensors
        traits.tensor_shapes = ";".join(f"{t.name}:{t.datatype}:{list(t.shape)}" for t in tensors)
        traits.length = max((t.shape[0] if t.shape else 1) for t in tensors)
        request.continuable = False
    else:
        traits.length = message.ByteSize()
        request.continuable = request.continuable and kind == "chat"


def body_hash(message: inference_pb2.InferenceRequest) -> bytes:
    """What a request id stands for: the fields as the client sent them, without ids, time, trace
    and hints (the list is the protocol's, at `InferenceRequest.request_id`).
    """
    body = _InferenceRequest()
    body.CopyFrom(message)
    for name in _NOT_HASHED:
        body.ClearField(name)
    return blake2b(body.SerializeToString(deterministic=True), digest_size=16).digest()
