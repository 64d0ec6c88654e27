"""What do requests have in common that differ in their ids and their input alone? Their form:
checked fields and defaults, converted once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from batchyard.v1 import inference_pb2
from scheduler_service.core.outcomes import ResumeMode
from scheduler_service.core.types import NEVER, Duration
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.rpc.moulds import Mould
from scheduler_service.rpc.validate import Refused, nanoseconds

_INPUT_NUMBERS: Final = {
    field.name: field.number
    for field in inference_pb2.InferenceRequest.DESCRIPTOR.oneofs_by_name["input"].fields
}
OWN: Final = frozenset({"request_id", "affinity_key", "trace", "labels", *_INPUT_NUMBERS})
_WITHOUT_PARAMS: Final = frozenset({"tensors", "embedding"})
_CONTINUABLE: Final = frozenset({"text", "tokens", "chat"})


@dataclass(slots=True)
class Form:
    """Fields of `core.types.Request`, and of its traits; times are from arrival on."""

    model: str
    priority: int
    tenant: str
    user_id: str
    task_type: str
    max_attempts: int
    output_tokens: int
    degrade: tuple[str, ...]
    input_kind: int
    continuable: bool
    given: frozenset[str]  # names of its fields that are set
    timeout: Duration = NEVER
    max_wait: Duration = NEVER
    degrade_after: Duration = NEVER
    resume_mode: ResumeMode = ResumeMode.DEFAULT
    inputs: int = 1
    params: bytes = b""
    mould: Mould | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """Makes forms by the configured task types and aliases."""

    task_types: TaskTypes
    aliases: Mapping[str, str]
    max_attempts: int
    max_timeout: Duration

    def form(self, fields: Mapping[str, Any], kind: str) -> Form:
        """The form of a request with these checked fields; `kind`: of its input.

        Raises:
            Refused: a duration is wrong, or there is no model.
        """
        get = fields.get
        task_type, defaults = self.task_types.resolve(get("task_type", ""))
        model = get("model") or defaults.model
        if not model:
            raise Refused(
                f"no model given, and task type {task_type!r} has no default", field="model"
            )
        form = Form(
            model=intern(self.aliases.get(model, model)),  # one copy for all that wait
            priority=get("priority") or defaults.priority,
            tenant=intern(get("tenant", "")),
            user_id=intern(get("user_id", "")),
            task_type=task_type,
            max_attempts=self.max_attempts,
            output_tokens=defaults.output_tokens,
            degrade=defaults.degrade,
            input_kind=_INPUT_NUMBERS[kind],
            continuable=kind in _CONTINUABLE,
            given=frozenset(fields) - OWN,
        )
        self._times(fields, form, defaults)
        if "degrade" in fields:
            self._degrade(fields["degrade"], form)
        if "failover" in fields:
            form.max_attempts = fields["failover"].max_attempts or self.max_attempts
            form.resume_mode = ResumeMode(fields["failover"].resume_mode)
        if "params" in fields and kind not in _WITHOUT_PARAMS:
            _apply_params(fields["params"], form)
        if "cost_hint" in fields and fields["cost_hint"].expected_output_tokens:
            form.output_tokens = fields["cost_hint"].expected_output_tokens
        return form

    def _times(self, fields: Mapping[str, Any], form: Form, defaults: TaskDefaults) -> None:
        timeout, max_wait = defaults.timeout, defaults.max_wait
        if "timeout" in fields:
            timeout = nanoseconds(fields["timeout"], "timeout", zero=False)
        if "max_wait" in fields:
            max_wait = min(NEVER, nanoseconds(fields["max_wait"], "max_wait", zero=True))
        if timeout < NEVER:
            form.timeout = min(timeout, self.max_timeout)
        form.max_wait = max_wait

    def _degrade(self, policy: inference_pb2.DegradePolicy, form: Form) -> None:
        named = [self.aliases.get(model, model) for model in policy.models]
        if policy.use_ladder:
            named += self.task_types.rungs_below(form.model, policy.min_quality)
        form.degrade = tuple(dict.fromkeys(named))
        if policy.HasField("after"):
            after = nanoseconds(policy.after, "degrade.after", zero=True)
            form.degrade_after = min(NEVER, after)


def _apply_params(params: inference_pb2.GenerationParams, form: Form) -> None:
    form.params = params.SerializeToString(deterministic=True)
    form.output_tokens = params.max_tokens or form.output_tokens
    choices = params.n or 1
    form.inputs = choices
    form.continuable = form.continuable and choices == 1 and params.WhichOneof("constraint") is None
