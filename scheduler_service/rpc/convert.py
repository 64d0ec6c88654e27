"""What does a caller's message mean to the core? From bytes to `core.types.Request`, defaults
filled in; the bytes themselves stay as they came, for the dispatch.
"""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from batchyard.v1 import inference_pb2
from scheduler_service.core.outcomes import Reason, ResumeMode
from scheduler_service.core.types import NEVER, Instant, Request, Traits
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.rpc.validate import Limits, Refused, check, nanoseconds
from service_kit import wire_walk

_InferenceRequest: Final = inference_pb2.InferenceRequest
_INPUT_NUMBERS: Final = {
    field.name: field.number
    for field in _InferenceRequest.DESCRIPTOR.oneofs_by_name["input"].fields
}
_WITHOUT_PARAMS: Final = frozenset({"tensors", "embedding"})
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
    fields: dict[str, Any]  # of the message, those that are set


def parse(kind: type[M], data: bytes, *, prefix: str = "") -> M:
    """The message, or Refused naming the field that does not parse."""
    try:
        return kind.FromString(data)
    except DecodeError:
        where = f"{prefix}{wire_walk.locate(data, kind)}".rstrip(".")
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
        # No client chooses such an id by accident, and no other start of a scheduler gives it.
        self._id_prefix = f"r-{os.urandom(4).hex()}-"

    def retune(self, task_types: TaskTypes, max_attempts: int) -> None:
        """Fill in these defaults from now on."""
        self._task_types, self._max_attempts = task_types, max_attempts

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
        fields = check(message, limits)
        request = self._request(fields, message.WhichOneof("input") or "", rid, now)
        request.stream = stream
        request.size_bytes = len(data)
        if rpc_deadline < request.deadline:
            request.deadline = rpc_deadline  # the earlier of the two counts
        return Parsed(request, message, fields)

    def _request(self, fields: dict[str, Any], kind: str, rid: int, now: Instant) -> Request:
        get = fields.get
        task_type, defaults = self._task_types.resolve(get("task_type", ""))
        model = get("model") or defaults.model
        if not model:
            raise Refused(
                f"no model given, and task type {task_type!r} has no default", field="model"
            )
        request = Request(
            rid,
            get("request_id") or f"{self._id_prefix}{rid:x}",
            intern(self._aliases.get(model, model)),  # one copy for all that wait
            get("priority") or defaults.priority,
            now,
            intern(get("tenant", "")),
            intern(get("user_id", "")),
            task_type,
        )
        request.affinity_key = get("affinity_key", "")
        request.max_attempts = self._max_attempts
        request.output_tokens = defaults.output_tokens
        self._times(fields, request, now, defaults)
        request.degrade = defaults.degrade
        if "degrade" in fields:
            self._degrade(fields["degrade"], request)
        if "failover" in fields:
            request.max_attempts = fields["failover"].max_attempts or self._max_attempts
            request.resume_mode = ResumeMode(fields["failover"].resume_mode)
        traits = request.traits = Traits()
        if "params" in fields and kind not in _WITHOUT_PARAMS:
            _apply_params(fields["params"], request, traits)
        if "cost_hint" in fields and fields["cost_hint"].expected_output_tokens:
            request.output_tokens = fields["cost_hint"].expected_output_tokens
        _apply_input(kind, fields[kind], request, traits)
        return request

    def _times(
        self, fields: dict[str, Any], request: Request, now: Instant, defaults: TaskDefaults
    ) -> None:
        """Budgets become instants here, on arrival."""
        timeout, max_wait = defaults.timeout, defaults.max_wait
        if "timeout" in fields:
            timeout = nanoseconds(fields["timeout"], "timeout", zero=False)
        if "max_wait" in fields:
            max_wait = min(NEVER, nanoseconds(fields["max_wait"], "max_wait", zero=True))
        if timeout < NEVER:
            request.deadline = now + min(timeout, self.limits.max_timeout)
        request.max_wait = max_wait

    def _degrade(self, policy: inference_pb2.DegradePolicy, request: Request) -> None:
        named = [self._aliases.get(model, model) for model in policy.models]
        if policy.use_ladder:
            named += self._task_types.rungs_below(request.model, policy.min_quality)
        request.degrade = tuple(dict.fromkeys(named))
        if policy.HasField("after"):
            after = nanoseconds(policy.after, "degrade.after", zero=True)
            request.degrade_after = min(NEVER, after)


@lru_cache(maxsize=1024)
def _one_copy(params: bytes) -> bytes:
    """Equal bytes as one object: most requests are asked for with the same parameters."""
    return params


def _apply_params(params: inference_pb2.GenerationParams, request: Request, traits: Traits) -> None:
    traits.params = _one_copy(params.SerializeToString(deterministic=True))
    request.output_tokens = params.max_tokens or request.output_tokens
    choices = params.n or 1
    request.inputs = choices
    request.continuable = choices == 1 and params.WhichOneof("constraint") is None


def _apply_input(kind: str, given: Any, request: Request, traits: Traits) -> None:
    """How long it is, and how many inputs it counts for."""
    traits.input_kind = _INPUT_NUMBERS[kind]
    if kind == "text":
        traits.length = len(given.prompt)
    elif kind == "tokens":
        traits.length = request.prompt_tokens = len(given.ids)
    elif kind == "embedding":
        traits.length = max(len(text) for text in given.texts)
        traits.dimensions = given.dimensions
        request.inputs = len(given.texts)
        request.continuable = False
    elif kind == "tensors":
        tensors = given.tensors
        traits.tensor_shapes = ";".join(f"{t.name}:{t.datatype}:{list(t.shape)}" for t in tensors)
        traits.length = max((t.shape[0] if t.shape else 1) for t in tensors)
        request.continuable = False
    else:
        traits.length = given.ByteSize()
        request.continuable = request.continuable and kind == "chat"


def fingerprint(data: bytes) -> bytes:
    """`body_hash` of a serialised InferenceRequest that was parsed before."""
    message = _InferenceRequest.FromString(data)
    return body_hash(message, {field.name for field, _ in message.ListFields()})


def body_hash(message: inference_pb2.InferenceRequest, fields: Container[str]) -> bytes:
    """What a request id stands for: the fields as the client sent them, without ids, time, trace
    and hints (the list is the protocol's, at `InferenceRequest.request_id`). `fields`: names of
    those that are set.
    """
    body = _InferenceRequest()
    body.CopyFrom(message)
    for name in _NOT_HASHED:
        if name in fields:
            body.ClearField(name)
    return blake2b(body.SerializeToString(deterministic=True), digest_size=16).digest()
