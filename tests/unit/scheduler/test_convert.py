"""What a message means to the core: defaults, instants, and what an id stands for."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2 as pb
from scheduler_service.core.outcomes import ResumeMode
from scheduler_service.core.types import NEVER, SECOND, Request
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.rpc.convert import Converter, Parsed, fingerprint
from scheduler_service.rpc.validate import Limits, Refused

NOW = 1_000 * SECOND
CHAT = TaskDefaults(
    model="talker", priority=8, max_wait=2 * SECOND, timeout=30 * SECOND, degrade=("small",),
    output_tokens=99,
)  # fmt: skip
CONVERTER = Converter(
    limits=Limits(), task_types=TaskTypes({"chat": CHAT}), aliases={"nick": "name"}, max_attempts=3
)


def parsed(*, deadline: int = NEVER, stream: bool = False, rid: int = 7, **fields: Any) -> Parsed:
    fields.setdefault("text", pb.TextInput(prompt="héllo"))
    data = pb.InferenceRequest(**fields).SerializeToString()
    return CONVERTER.convert(data, rid=rid, now=NOW, rpc_deadline=deadline, stream=stream)


def convert(**fields: Any) -> Request:
    return parsed(**fields).request


def test_task_type_says_what_the_request_does_not() -> None:
    request = convert(task_type="chat")
    assert (request.model, request.priority, request.task_type) == ("talker", 8, "chat")
    assert (request.deadline, request.max_wait) == (NOW + 30 * SECOND, 2 * SECOND)
    assert (request.degrade, request.output_tokens) == (("small",), 99)


def test_requests_own_word_wins_over_its_task_type() -> None:
    request = convert(
        task_type="chat",
        model="mine",
        priority=1,
        timeout=Duration(seconds=5),
        max_wait=Duration(),
        degrade=pb.DegradePolicy(),
        params=pb.GenerationParams(max_tokens=3),
    )
    assert (request.model, request.priority) == ("mine", 1)
    assert (request.deadline, request.max_wait) == (NOW + 5 * SECOND, 0)
    assert (request.degrade, request.output_tokens) == ((), 3)


def test_plain_request_has_plain_values() -> None:
    request = convert(model="m")
    assert (request.priority, request.task_type) == (5, "other")
    assert (request.deadline, request.max_wait, request.degrade_after) == (NEVER, NEVER, NEVER)
    assert (request.max_attempts, request.resume_mode) == (3, ResumeMode.DEFAULT)
    assert (request.received_at, request.inputs, request.stream) == (NOW, 1, False)
    assert request.continuable
    assert request.size_bytes > 0


def test_aliases_are_followed_for_the_model_and_for_substitutes() -> None:
    policy = pb.DegradePolicy(models=["nick", "name", "other"], after=Duration(seconds=1))
    request = convert(model="nick", degrade=policy)
    assert request.model == "name"
    assert request.degrade == ("name", "other")
    assert request.degrade_after == SECOND


def test_earlier_of_both_deadlines_counts_and_the_limit_holds() -> None:
    assert convert(model="m", deadline=NOW + 1).deadline == NOW + 1
    soon = Duration(seconds=1)
    assert convert(model="m", deadline=NOW + 9 * SECOND, timeout=soon).deadline == NOW + SECOND
    century = convert(model="m", timeout=Duration(seconds=3_000_000_000))
    assert century.deadline == NOW + Limits().max_timeout


def test_server_gives_an_id_that_no_client_would_and_no_other_start_does() -> None:
    other = Converter(limits=Limits(), task_types=TaskTypes(), aliases={}, max_attempts=3)
    data = pb.InferenceRequest(model="m", text=pb.TextInput(prompt="x")).SerializeToString()
    ids = {
        converter.convert(data, rid=rid, now=0, rpc_deadline=NEVER, stream=False).request.request_id
        for converter in (CONVERTER, other)
        for rid in (1, 2)
    }
    assert len(ids) == 4
    assert all(len(given) <= 64 for given in ids)


def test_model_may_be_left_out_only_where_the_task_type_has_one() -> None:
    with pytest.raises(Refused) as caught:
        parsed()
    assert caught.value.error.field == "model"


@pytest.mark.parametrize(
    ("fields", "inputs", "continuable"),
    [
        ({}, 1, True),
        ({"params": pb.GenerationParams(n=4)}, 4, False),
        ({"params": pb.GenerationParams(n=1)}, 1, True),
        ({"params": pb.GenerationParams(regex="a*")}, 1, False),
        ({"params": pb.GenerationParams(json_object=True)}, 1, False),
        ({"text": None, "embedding": pb.EmbeddingInput(texts=["a", "bc"])}, 2, False),
        ({"text": None, "tokens": pb.TokenInput(ids=[1, 2, 3])}, 1, True),
        ({"text": None, "raw": pb.RawInput(data=b"{}")}, 1, False),
    ],
)
def test_what_it_is_charged_and_whether_it_can_be_continued(
    fields: dict[str, Any], inputs: int, continuable: bool
) -> None:
    request = convert(model="m", **fields)
    assert (request.inputs, request.continuable) == (inputs, continuable)


def test_parameters_do_not_count_where_nothing_is_generated() -> None:
    data = pb.Tensor(name="x", datatype="BOOL", shape=[2], data=b"\1\0")
    request = convert(
        model="m",
        text=None,
        tensors=pb.TensorInput(tensors=[data]),
        params=pb.GenerationParams(n=9, max_tokens=5),
    )
    assert (request.inputs, request.output_tokens) == (1, 0)
    assert request.traits is not None
    assert request.traits.params == b""
    assert request.traits.tensor_shapes == "x:BOOL:[2]"


def test_traits_tell_unlike_requests_apart() -> None:
    def traits(**fields: Any) -> Any:
        return convert(model="m", **fields).traits

    assert traits() == traits()
    assert traits(params=pb.GenerationParams(top_k=1)) != traits()
    assert traits(text=None, tokens=pb.TokenInput(ids=[1] * 5)) != traits()


def test_hint_about_the_output_is_taken() -> None:
    hint = pb.CostHint(expected_output_tokens=77)
    assert convert(model="m", cost_hint=hint).output_tokens == 77


# What an id stands for.

SAMPLES: dict[str, Any] = {
    "request_id": "b", "model": "other", "priority": 9, "task_type": "chat", "tenant": "t",
    "user_id": "u", "timeout": Duration(seconds=9), "max_wait": Duration(seconds=9),
    "degrade": pb.DegradePolicy(), "failover": pb.FailoverPolicy(), "affinity_key": "k",
    "trace": {"traceparent": "x"}, "labels": {"a": "b"}, "cost_hint": pb.CostHint(),
    "text": pb.TextInput(prompt="other"), "params": pb.GenerationParams(), "output": {},
    "chat": {"messages": [{"role": "user", "parts": [{"text": "x"}]}]}, "tokens": {"ids": [1]},
    "tensors": {"tensors": [{"datatype": "FP32", "shape": [0]}]}, "embedding": {"texts": ["x"]},
    "raw": {"data": b"x"},
}  # fmt: skip
NOT_THE_BODY = {"request_id", "tenant", "user_id", "timeout", "affinity_key", "trace", "cost_hint"}


def digest(**fields: Any) -> bytes:
    if not {"text", "chat", "tokens", "tensors", "embedding", "raw"} & set(fields):
        fields["text"] = pb.TextInput(prompt="same")
    call = parsed(**{"text": None, "model": "m", "request_id": "a", **fields})
    return fingerprint(call.data)


@pytest.mark.parametrize(
    "name", [f.name for f in pb.InferenceRequest.DESCRIPTOR.fields if f.name != "ref"]
)
def test_id_stands_for_the_body_as_the_protocol_lists_it(name: str) -> None:
    assert (digest(**{name: SAMPLES[name]}) == digest()) is (name in NOT_THE_BODY)


def test_order_of_labels_does_not_matter_and_unknown_fields_do() -> None:
    one = digest(labels={"a": "1", "b": "2"})
    assert one == digest(labels={"b": "2", "a": "1"})
    plain = pb.InferenceRequest(model="m", request_id="a", text=pb.TextInput(prompt="same"))
    later = plain.SerializeToString() + b"\x9a\xf1\x01\x05later"
    call = CONVERTER.convert(later, rid=1, now=0, rpc_deadline=NEVER, stream=False)
    assert fingerprint(call.data) != digest()


def test_samples_are_of_the_right_fields() -> None:
    scalar = {
        f.name
        for f in pb.InferenceRequest.DESCRIPTOR.fields
        if f.type != FieldDescriptor.TYPE_MESSAGE
    }
    assert scalar <= set(SAMPLES)


@pytest.mark.parametrize(
    ("wrong", "variable", "value"),
    [
        ({"priority": 11}, "value", "11"),
        ({"params": pb.GenerationParams(top_p=2)}, "value", "2.0"),
        ({"failover": pb.FailoverPolicy(resume_mode=99)}, "value", "99"),
        ({"text": pb.TextInput(prompt="x" * (5 << 20))}, "requestBytes", "5242894"),
    ],
)
def test_what_a_refusal_names_is_there_for_programs_too(
    wrong: dict[str, Any], variable: str, value: str
) -> None:
    with pytest.raises(Refused) as caught:
        parsed(model="m", **wrong)
    assert caught.value.error.metadata[variable] == value
    assert value in caught.value.error.message
