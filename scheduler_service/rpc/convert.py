"""What does a caller's message mean to the core? From bytes to `core.types.Request`, defaults
filled in; the bytes themselves stay as they came, for the dispatch.

Most requests differ from others in their ids and their input alone. What is left without them is a
request's form (`forms.py`), known by its bytes: the first request that has it is checked and
converted field by field, and those that follow look it up, or are not even parsed (`moulds.py`).
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import NEVER, Instant, Request, Traits
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.rpc.forms import Form, Former
from scheduler_service.rpc.moulds import mould_of
from scheduler_service.rpc.rpc_deadlines import even
from scheduler_service.rpc.validate import Limits, Refused, check, check_fields, is_sound
from service_kit import wire_walk

_InferenceRequest: Final = inference_pb2.InferenceRequest
FORMS_MAX: Final = 1_024  # that are remembered
FORM_BYTES_MAX: Final = 1_024  # of one; a larger one is converted each time
# Not part of what a request id stands for: ids, time, trace and hints.
_NOT_HASHED: Final = (
    "request_id", "tenant", "user_id", "timeout", "affinity_key", "trace", "cost_hint",
)  # fmt: skip

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Parsed:
    """A call, ready for the core, and what the edge keeps of it."""

    request: Request
    data: bytes  # InferenceRequest
    given: Container[str]  # names of the fields that the caller chose
    named: bool = False  # it has a request id of its caller's
    labels: Mapping[str, str] | None = None
    trace: types_pb2.TraceContext | None = None


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
        self._aliases = aliases
        self._former = Former(task_types, aliases, max_attempts, limits.max_timeout)
        self._last: Form | None = None  # of the last request; None: it has no mould
        self._forms: dict[tuple[str, bytes], Form] = {}  # by kind of input and the form's bytes
        # No client chooses such an id by accident, and no other start of a scheduler gives it.
        self._id_prefix = f"r-{os.urandom(4).hex()}-"

    def retune(self, task_types: TaskTypes, max_attempts: int) -> None:
        """Fill in these defaults from now on."""
        self._former = Former(task_types, self._aliases, max_attempts, self.limits.max_timeout)
        self._forms.clear()
        self._last = None

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
                metadata={
                    "limitBytes": str(limits.max_request_bytes),
                    "requestBytes": str(len(data)),
                },
            )
        parsed = self._cast(data, rid, now) or self._read(data, rid, now)
        request = parsed.request
        request.stream = stream
        request.size_bytes = len(data)
        if rpc_deadline < request.deadline:
            request.deadline = rpc_deadline  # the earlier of the two counts
            request.due = now + even(rpc_deadline - now)
        return parsed

    def _cast(self, data: bytes, rid: int, now: Instant) -> Parsed | None:
        """It is like the last one; None: it is not, or is to be checked."""
        form = self._last
        own = form.mould.read(data) if form is not None and form.mould is not None else None
        if form is None or own is None:
            return None
        request_id, prompt = own
        if not is_sound(request_id, prompt):
            return None
        request = self._request(form, request_id, rid, now)
        assert request.traits is not None
        request.traits.length = len(prompt)
        return Parsed(request, data, form.given, request_id != "")

    def _read(self, data: bytes, rid: int, now: Instant) -> Parsed:
        """Parse it, and see what form it has."""
        message = parse(_InferenceRequest, data)
        kind = message.WhichOneof("input") or ""
        own = _take_own(message, kind)
        key = (kind, message.SerializeToString())
        form = self._forms.get(key)
        if form is None:
            form = self._learn(key, data)
        else:
            check_fields(own, self.limits)
        self._last = form if form.mould is not None else None
        get = own.get
        request = self._request(form, get("request_id", ""), rid, now)
        if "affinity_key" in own:
            request.affinity_key = own["affinity_key"]
        assert request.traits is not None
        _measure(kind, own[kind], request, request.traits)
        return Parsed(request, data, form.given, "request_id" in own, get("labels"), get("trace"))

    def _learn(self, key: tuple[str, bytes], data: bytes) -> Form:
        """The form of a request that is the first to have it: every field is checked."""
        kind, form_bytes = key
        fields = check(parse(_InferenceRequest, data), self.limits)
        form = self._former.form(fields, kind)
        if len(form_bytes) <= FORM_BYTES_MAX:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()  # those in use come back
            self._forms[key] = form
            form.mould = mould_of(data, form_bytes) if kind == "text" else None
        return form

    def _request(self, form: Form, request_id: str, rid: int, now: Instant) -> Request:
        request = Request(
            rid,
            request_id or f"{self._id_prefix}{rid:x}",
            form.model,
            form.priority,
            now,
            form.tenant,
            form.user_id,
            form.task_type,
        )
        if form.timeout < NEVER:
            request.deadline = now + form.timeout
        request.max_wait = form.max_wait
        request.degrade = form.degrade
        request.degrade_after = form.degrade_after
        request.max_attempts = form.max_attempts
        request.resume_mode = form.resume_mode
        request.continuable = form.continuable
        request.inputs = form.inputs
        request.output_tokens = form.output_tokens
        request.traits = Traits(form.params, form.input_kind)
        return request


def _take_own(message: inference_pb2.InferenceRequest, kind: str) -> dict[str, Any]:
    """What belongs to this request alone, taken out of the message, by name."""
    own: dict[str, Any] = {}
    if request_id := message.request_id:
        own["request_id"] = request_id
    if affinity_key := message.affinity_key:
        own["affinity_key"] = affinity_key
    if message.HasField("trace"):
        own["trace"] = message.trace
    if labels := message.labels:
        own["labels"] = labels
    if kind:
        own[kind] = getattr(message, kind)
    for name in own:
        message.ClearField(name)
    return own


def _measure(kind: str, given: Any, request: Request, traits: Traits) -> None:
    """How long it is, and how many inputs it counts for."""
    if kind == "text":
        traits.length = len(given.prompt)
    elif kind == "tokens":
        traits.length = request.prompt_tokens = len(given.ids)
    elif kind == "embedding":
        traits.length = max(len(text) for text in given.texts)
        traits.dimensions = given.dimensions
        request.inputs = len(given.texts)
    elif kind == "tensors":
        tensors = given.tensors
        traits.tensor_shapes = ";".join(f"{t.name}:{t.datatype}:{list(t.shape)}" for t in tensors)
        traits.length = max((t.shape[0] if t.shape else 1) for t in tensors)
    else:
        traits.length = given.ByteSize()


def fingerprint(data: bytes) -> bytes:
    """What a request id stands for: the fields of a serialised InferenceRequest as the client sent
    them, without ids, time, trace and hints (the list is the protocol's, at
    `InferenceRequest.request_id`).
    """
    body = _InferenceRequest.FromString(data)
    for name in _NOT_HASHED:
        body.ClearField(name)
    return blake2b(body.SerializeToString(deterministic=True), digest_size=16).digest()
