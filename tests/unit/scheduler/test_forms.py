"""Are requests of a form that is known converted as if they were the first of it?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from batchyard.v1 import inference_pb2 as pb
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.rpc.convert import FORM_BYTES_MAX, FORMS_MAX, Converter, Parsed
from scheduler_service.rpc.validate import Limits, Refused
from tests.unit.scheduler.test_convert import SAMPLES

TYPES = TaskTypes({"chat": TaskDefaults(timeout=30 * SECOND, degrade=("small",))})
MORE: list[dict[str, Any]] = [
    {"params": {"n": 3}},
    {"params": {"max_tokens": 5}},
    {"params": {"max_tokens": 6, "regex": "a+"}},
    {"params": {"logit_bias": {1: 2.0, 2: 3.0}}, "tensors": SAMPLES["tensors"]},
    {"timeout": {"seconds": 2}},
    {"degrade": {"models": ["x", "y"], "after": {"seconds": 1}}},
    {"failover": {"max_attempts": 7, "resume_mode": 1}},
    {"cost_hint": {"expected_output_tokens": 44}},
    {"text": {"prompt": "a longer one"}, "labels": {"a": "b"}},
    {"request_id": "another", "affinity_key": "elsewhere", "trace": {"traceparent": "t"}},
]


def new() -> Converter:
    return Converter(limits=Limits(), task_types=TYPES, aliases={}, max_attempts=3)


def data_of(fields: dict[str, Any]) -> bytes:
    given = {"model": "m", "request_id": "id", **fields}
    if not {"text", "chat", "tokens", "tensors", "embedding", "raw"} & set(given):
        given["text"] = {"prompt": "x"}
    return pb.InferenceRequest(**given).SerializeToString()


def parsed(converter: Converter, fields: dict[str, Any]) -> Parsed:
    return converter.convert(data_of(fields), rid=1, now=5, rpc_deadline=NEVER, stream=False)


def shown(call: Parsed) -> dict[str, Any]:
    request = call.request
    said = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    given = {name for name in ("model", "priority", "degrade", "timeout") if name in call.given}
    trace = call.trace.traceparent if call.trace is not None else None
    return {**said, "given": given, "labels": dict(call.labels or {}), "trace": trace}


def test_what_was_converted_before_changes_nothing() -> None:
    used = new()
    asked = [{}, *({name: value} for name, value in SAMPLES.items()), *MORE]
    for fields in [*asked, *asked]:  # the second time all forms are known
        assert shown(parsed(used, fields)) == shown(parsed(new(), fields)), fields


def test_each_request_of_a_form_keeps_what_is_its_own() -> None:
    converter = new()
    for name in ("one", "second"):
        own = {"request_id": name, "affinity_key": f"{name}'s", "labels": {"a": name}}
        call = parsed(converter, {**own, "text": {"prompt": name}, "trace": {"tracestate": name}})
        request = call.request
        assert (request.request_id, request.affinity_key) == (name, f"{name}'s")
        assert request.traits is not None
        assert request.traits.length == len(name)
        assert call.named
        assert dict(call.labels or {}) == {"a": name}
        assert call.trace is not None
        assert call.trace.tracestate == name
    assert len(converter._forms) == 1


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("request_id", "no spaces"),
        ("affinity_key", "x" * 129),
        ("trace", {"traceparent": "x" * 65}),
        ("labels", {"": "x"}),
        ("text", {"prompt": " "}),
    ],
)
def test_what_is_not_of_the_form_is_checked_each_time(field: str, wrong: Any) -> None:
    converter = new()
    parsed(converter, {})
    with pytest.raises(Refused) as caught:
        parsed(converter, {field: wrong})
    assert caught.value.error.field.split(".")[0] == field


def test_a_wrong_form_is_refused_each_time() -> None:
    converter = new()
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            parsed(converter, {"params": {"top_p": 2.0}})
        assert caught.value.error.field == "params.top_p"


def test_few_and_small_forms_are_remembered() -> None:
    converter = new()
    for number in range(FORMS_MAX + 10):
        parsed(converter, {"user_id": f"u{number}"})
    assert 0 < len(converter._forms) <= FORMS_MAX
    known = len(converter._forms)
    large = {"params": {"regex": "x" * FORM_BYTES_MAX}}
    assert shown(parsed(converter, large)) == shown(parsed(new(), large))
    assert len(converter._forms) == known
