"""What is accepted up to the very limit; what is refused is tried through the port itself."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2 as pb
from scheduler_service.rpc import json_text, tensors
from scheduler_service.rpc.validate import (
    _CHECKS,
    _PARAMS,
    _RANGES,
    Limits,
    Refused,
    check,
    nanoseconds,
)

LIMITS = Limits()


def request(**fields: Any) -> pb.InferenceRequest:
    return pb.InferenceRequest(text=pb.TextInput(prompt="hi"), **fields)


def params(**fields: Any) -> pb.InferenceRequest:
    return request(params=pb.GenerationParams(**fields))


@pytest.mark.parametrize(
    "good",
    [
        request(),
        request(request_id="A-z_0.9:" * 8, model="m" * 256, priority=10, task_type="a" * 64),
        request(tenant="t" * 64, user_id="u" * 64, affinity_key="k" * 128),
        request(labels={"k" * 63: "v" * 256, **{f"{n}": "" for n in range(15)}}),
        request(timeout=Duration(nanos=1), max_wait=Duration()),
        request(failover=pb.FailoverPolicy(max_attempts=10, resume_mode=pb.RESUME_MODE_RESTART)),
        request(degrade=pb.DegradePolicy(models=["m"] * 8, min_quality=1.0)),
        request(degrade=pb.DegradePolicy()),
        request(output=pb.OutputOptions(logprobs=20)),
        request(trace={"traceparent": "0" * 55, "tracestate": "x" * 9999}),
        params(max_tokens=2**31 - 1, min_tokens=2**31 - 1, n=128, top_k=-1),
        params(min_tokens=5),
        params(temperature=0.0, top_p=1.0, min_p=0.0, frequency_penalty=-2.0),
        params(presence_penalty=2.0, repetition_penalty=0.001, logit_bias={1: -100.0, 2: 100.0}),
        params(temperature=-0.0),
        params(stop=["x"] * 16, json_schema="true"),
        params(json_object=True, engine_options_json='{"a": 12345678901234567890123}'),
        pb.InferenceRequest(tokens=pb.TokenInput(ids=[0])),
        pb.InferenceRequest(embedding=pb.EmbeddingInput(texts=["a"] * 2048)),
    ],
)
def test_what_is_within_the_limits_is_accepted(good: pb.InferenceRequest) -> None:
    fields = check(good, LIMITS)
    assert set(fields) == {field.name for field, _ in good.ListFields()}


@pytest.mark.parametrize(
    "turn",
    [
        pb.ChatMessage(role="tool", tool_call_id="c", parts=[pb.ContentPart(text="42")]),
        pb.ChatMessage(role="assistant", tool_calls=[{"id": "c", "name": "f"}]),
        pb.ChatMessage(role="user", parts=[pb.ContentPart(text=""), pb.ContentPart(text="x")]),
        pb.ChatMessage(
            role="user", parts=[pb.ContentPart(image=pb.PayloadRef(inline=b"x", sha256=b"y" * 32))]
        ),
    ],
)
def test_turns_of_every_sort_are_accepted(turn: pb.ChatMessage) -> None:
    check(pb.InferenceRequest(chat=pb.ChatInput(messages=[turn])), LIMITS)


def test_every_field_of_a_request_has_its_check_or_needs_none() -> None:
    """A field that a later version adds must be thought of: here or in `_CHECKS`."""
    read_elsewhere = {"timeout", "max_wait"}
    assert {f.name for f in pb.InferenceRequest.DESCRIPTOR.fields} == set(_CHECKS) | read_elsewhere
    anything_goes = {"seed", "stop_token_ids", "ignore_eos", "json_object"}
    known = set(_RANGES) | set(_PARAMS) | anything_goes
    assert {f.name for f in pb.GenerationParams.DESCRIPTOR.fields} == known


def test_refusal_says_where_from_the_outside_in() -> None:
    with pytest.raises(Refused) as caught:
        check(params(top_k=0), LIMITS)
    refused = caught.value
    refused.within("request")
    refused.within("calls[3]")
    assert refused.error.field == "calls[3].request.params.top_k"
    nowhere = Refused("all of it is bad")
    nowhere.within("request")
    assert nowhere.error.field == "request"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (params(top_p=0.0), "top_p is 0.0; it must be above 0, at most 1"),
        (params(presence_penalty=3.0), "presence_penalty is 3.0; it must be -2..2"),
    ],
)
def test_refusal_says_what_a_number_may_be(bad: pb.InferenceRequest, words: str) -> None:
    with pytest.raises(Refused, match=words):
        check(bad, LIMITS)


def test_lengths_of_time() -> None:
    assert nanoseconds(Duration(seconds=2, nanos=5), "t", zero=False) == 2_000_000_005
    assert nanoseconds(Duration(), "t", zero=True) == 0
    for bad in (Duration(), Duration(seconds=-1), Duration(nanos=-1), Duration(nanos=10**9)):
        with pytest.raises(Refused):
            nanoseconds(bad, "t", zero=False)


# JSON as text.


def nested(levels: int, kind: str = "[") -> str:
    return kind * levels + "1" * (kind != "[") + {"[": "]", '{"a":': "}"}[kind] * levels


@pytest.mark.parametrize(("text", "kind"), [("[", list), ('{"a":', dict)])
def test_depth_is_counted_exactly(text: str, kind: type) -> None:
    for levels, good in ((1, True), (63, True), (64, True), (65, False), (500, False)):
        assert (json_text.fault(nested(levels, text), kind, 64) == "") is good
    assert "deeper than 64" in json_text.fault(nested(65, text), kind, 64)


def test_brackets_in_strings_do_not_count() -> None:
    value = ["[" * 100, '"[' * 100, "\\[{" * 100, {"]": "}"}]
    assert json_text.fault(json.dumps(value), list, 2) == ""
    assert json_text.fault(json.dumps([[], {}, [[]], [{}]]), list, 3) == ""
    assert json_text.fault(json.dumps([[], {}, [[]], [{}]]), list, 2) != ""


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", "nul", "1 2", "NaN", '{"a": Infinity}', "[" * 9999]
)
def test_what_is_no_json_is_said_to_be_none(text: str) -> None:
    assert json_text.fault(text, (dict, list), 64) != ""


@pytest.mark.parametrize("text", ["1", '"x"', "null", "true", "1.5"])
def test_wrong_kind_is_named(text: str) -> None:
    assert "wrong JSON type" in json_text.fault(text, dict, 64)


def test_large_json_does_not_hold_everybody_up() -> None:
    """4 MB of brackets: a loop over its characters would take half a second or more."""
    text = "[" + ",".join(["[[],{}]"] * 500_000) + "]"
    began = time.process_time()
    assert json_text._is_within(text, 64)
    assert time.process_time() - began < 0.4


# Tensors.


def tensor(datatype: str, shape: list[int], data: bytes) -> pb.Tensor:
    return pb.Tensor(name="x", datatype=datatype, shape=shape, data=data)


@pytest.mark.parametrize(
    "good",
    [
        tensor("FP32", [], b"\0" * 4),
        tensor("FP32", [0, 5], b""),
        tensor("BF16", [3], b"\0" * 6),
        tensor("BYTES", [], b"\2\0\0\0ab"),
        tensor("BYTES", [2, 1], b"\0\0\0\0\1\0\0\0x"),
        tensor("BYTES", [0], b""),
    ],
)
def test_tensors_that_hold_what_they_say(good: pb.Tensor) -> None:
    assert tensors.fault(good) is None


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (tensor("FP32", [], b""), "data"),
        (tensor("FP32", [2], b"\0" * 4), "data"),
        (tensor("BYTES", [1], b"\2\0\0"), "data"),
        (tensor("BYTES", [1], b"\xff\xff\xff\xffab"), "data"),
        (tensor("", [1], b"\0"), "datatype"),
        (tensor("FP32", [-1], b""), "shape"),
    ],
)
def test_tensors_that_do_not(bad: pb.Tensor, field: str) -> None:
    fault = tensors.fault(bad)
    assert fault is not None
    assert fault[0] == field
    assert len(fault[1]) < 300
