"""Every field of a request reaches llama.cpp's server, or is refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.faults import ItemFailed, from_response
from node_agent.engines.interface import Item
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_request import build_call

OPTIONS = LlamacppOptions(model_path="x.gguf", slots=4)
Params = inference_pb2.GenerationParams


def item(
    request: inference_pb2.InferenceRequest | None = None,
    continuation: node_service_pb2.Continuation | None = None,
    max_tokens: int = 0,
    **params: Any,
) -> Item:
    if request is None:
        request = inference_pb2.InferenceRequest(text=inference_pb2.TextInput(prompt="hi"))
    request.params.MergeFrom(Params(**params))
    return Item(
        dispatch_id=1,
        attempt=1,
        model="m",
        request=request,
        max_tokens=max_tokens,
        stream=True,
        priority=5,
        continuation=continuation,
    )


def body(*args: Any, options: LlamacppOptions = OPTIONS, **params: Any) -> dict[str, Any]:
    built: dict[str, Any] = json.loads(build_call(item(*args, **params), options).body)
    return built


def refusal(*args: Any, **params: Any) -> Any:
    with pytest.raises(ItemFailed) as caught:
        build_call(item(*args, **params), OPTIONS)
    return caught.value.error


def test_sampling_parameters_are_passed_on() -> None:
    sent = body(
        max_tokens=7,
        temperature=0.0,
        top_p=0.5,
        top_k=20,
        min_p=0.25,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        repetition_penalty=1.25,
        seed=-1,
        stop=["a", "b"],
        ignore_eos=True,
        n=2,
        logit_bias={5: 1.5, 3: -100.0},
    )
    wanted = {
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 20,
        "min_p": 0.25,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "repeat_penalty": 1.25,
        "seed": 2**32 - 2,
        "stop": ["a", "b"],
        "ignore_eos": True,
        "n": 2,
        "logit_bias": [[3, -100.0], [5, 1.5]],
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_what_is_unset_stays_the_engines_default() -> None:
    assert not {"temperature", "top_p", "top_k", "seed", "stop", "grammar"} & body().keys()
    assert body()["max_tokens"] == 512


def test_no_parameter_is_left_out() -> None:
    """A parameter that is added to the protocol must be passed on or refused here."""
    known = {
        "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty",
        "presence_penalty", "repetition_penalty", "seed", "stop", "stop_token_ids", "ignore_eos",
        "n", "logit_bias", "json_schema", "regex", "grammar", "json_object", "engine_options_json",
    }  # fmt: skip
    assert {field.name for field in Params.DESCRIPTOR.fields} == known


@pytest.mark.parametrize(
    ("params", "feature"),
    [
        ({"min_tokens": 3}, "min_tokens"),
        ({"stop_token_ids": [2]}, "stop_token_ids"),
        ({"regex": "a+"}, "regex"),
        ({"n": 5}, "n"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(params: dict[str, Any], feature: str) -> None:
    error = refusal(**params)
    assert error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
    assert (error.field, error.metadata) == (f"request.params.{feature}", {"feature": feature})


@pytest.mark.parametrize("name", ["token_ids", "omit_text", "logprobs"])
def test_outputs_that_it_has_not_are_refused(name: str) -> None:
    request = inference_pb2.InferenceRequest(text=inference_pb2.TextInput(prompt="hi"))
    setattr(request.output, name, 1)
    assert refusal(request).field == f"request.output.{name}"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"json_schema": "{"}, "request.params.json_schema"),
        ({"json_schema": "3"}, "request.params.json_schema"),
        ({"engine_options_json": "[]"}, "request.params.engine_options_json"),
        ({"engine_options_json": '{"prompt": "x"}'}, "request.params.engine_options_json"),
        ({"temperature": float("nan")}, "request.params"),
        ({"logit_bias": {1: float("inf")}}, "request.params"),
    ],
)
def test_faulty_values_are_the_callers_fault(params: dict[str, Any], field: str) -> None:
    """Behaviour 83 among them: NaN is never sent."""
    error = refusal(**params)
    assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert error.field == field


def test_engine_options_are_passed_through() -> None:
    assert body(engine_options_json='{"mirostat": 2}')["mirostat"] == 2


def test_constraints_are_passed_on() -> None:
    assert body(grammar='root ::= "x"')["grammar"] == 'root ::= "x"'
    assert body(json_schema='{"type": "null"}')["json_schema"] == {"type": "null"}
    assert body(json_object=True)["json_schema"] == {"type": "object"}
    assert "json_schema" not in body(json_object=False)


def chat(*turns: tuple[str, str]) -> inference_pb2.InferenceRequest:
    request = inference_pb2.InferenceRequest()
    for role, text in turns:
        request.chat.messages.add(role=role).parts.add(text=text)
    return request


def test_plain_prompt_is_a_users_turn_unless_told_otherwise() -> None:
    assert build_call(item(), OPTIONS).path == "/v1/chat/completions"
    assert body()["messages"] == [{"role": "user", "content": "hi"}]
    bare = LlamacppOptions(model_path="x.gguf", apply_chat_template=False)
    assert build_call(item(), bare).path == "/v1/completions"
    assert body(options=bare)["prompt"] == "hi"


def test_chat_keeps_its_turns() -> None:
    sent = body(chat(("developer", "be brief"), ("user", "你好")))["messages"]
    assert sent == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "你好"},
    ]


def test_continuation_begins_the_assistants_turn() -> None:
    """The server refuses two assistant's turns in a row, so a begun one grows."""
    continuation = node_service_pb2.Continuation(text=" so far", output_tokens=3)
    sent = body(continuation=continuation, max_tokens=10)
    assert sent["messages"][1:] == [{"role": "assistant", "content": " so far"}]
    assert sent["max_tokens"] == 7
    begun = body(chat(("user", "hi"), ("assistant", "Well,")), continuation=continuation)
    assert begun["messages"][1:] == [{"role": "assistant", "content": "Well, so far"}]


@pytest.mark.parametrize("params", [{"n": 2}, {"json_object": True}, {"grammar": "x"}])
def test_what_cannot_be_continued_is_refused(params: dict[str, Any]) -> None:
    continuation = node_service_pb2.Continuation(text="so far")
    assert refusal(continuation=continuation, **params).metadata == {"feature": "continuation"}


def test_pictures_and_tools_are_refused_at_their_place() -> None:
    picture = chat(("user", "look"))
    picture.chat.messages[0].parts.add(image=inference_pb2.PayloadRef(inline=b"x"))
    assert refusal(picture).field == "request.chat.messages[0].parts[1]"
    tools = chat(("user", "go"))
    tools.chat.tools_json = "[]"
    assert refusal(tools).field == "request.chat.tools_json"
    assert refusal(chat(("user", "go"), ("tool", "3"))).field == "request.chat.messages[1]"


def test_prompts_limit_wins_over_requests_limit() -> None:
    """A degrade may cut max_tokens: the dispatch's own number counts."""
    assert json.loads(build_call(item(max_tokens=4), OPTIONS).body)["max_tokens"] == 4


@pytest.mark.parametrize(
    ("status", "reason", "refused"),
    [
        (400, types_pb2.ERROR_REASON_INVALID_ARGUMENT, False),
        (503, types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True),
        (500, types_pb2.ERROR_REASON_ENGINE_ERROR, False),
        (418, types_pb2.ERROR_REASON_ENGINE_ERROR, False),
    ],
)
def test_status_decides_the_reason(status: int, reason: int, refused: bool) -> None:
    for text in ('{"error": {"message": "why"}}', "why", '["why"]'):
        error = from_response(status, text, "text")
        assert (error.reason, error.refused) == (reason, refused)
        assert "why" in error.message


def test_engine_error_tells_the_status() -> None:
    assert from_response(500, "x" * 10000, "text").metadata == {"engineStatus": "500"}
    assert len(from_response(500, "x" * 10000, "text").message) < 600
