"""Keyword arguments become an InferenceRequest, or an error that names the one at fault."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from batchyard.errors import InvalidRequest
from batchyard.request import _SETTERS, RequestOptions, fill_request
from batchyard.v1 import ChatMessage, ContentPart, DegradePolicy, InferenceRequest, ResumeMode


def build(
    prompt: Any = None, messages: Any = None, request: Any = None, **options: Any
) -> InferenceRequest:
    target = InferenceRequest()
    fill_request(target, prompt, messages, request, options)
    return target


def refused(**arguments: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        build(**arguments)
    assert caught.value.reason == "INVALID_ARGUMENT"
    return caught.value


def test_all_of_it_together() -> None:
    request = build(
        "Why?",
        model="llama",
        task_type="summarization",
        priority=8,
        max_wait="2s",
        timeout=60,
        degrade=["small", "tiny"],
        tenant="acme",
        user_id="u",
        request_id="id-1",
        labels={"a": "b"},
        affinity_key="k",
        resume="restart",
        max_attempts=2,
        expected_output_tokens=9,
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        stop="END",
        json_schema={"type": "object"},
        engine_options={"x": 1},
        stream_usage=True,
    )
    assert request.text.prompt == "Why?"
    assert (request.model, request.task_type, request.priority) == ("llama", "summarization", 8)
    assert (request.max_wait.seconds, request.timeout.seconds) == (2, 60)
    assert list(request.degrade.models) == ["small", "tiny"]
    assert request.failover.resume_mode == ResumeMode.RESUME_MODE_RESTART
    assert request.failover.max_attempts == 2
    assert request.params.HasField("temperature")
    assert request.params.temperature == 0
    assert list(request.params.stop) == ["END"]
    assert json.loads(request.params.json_schema) == {"type": "object"}
    assert request.cost_hint.expected_output_tokens == 9
    assert request.output.stream_usage


def test_the_table_and_the_type_name_the_same_options() -> None:
    assert set(_SETTERS) == set(RequestOptions.__annotations__)


def test_none_is_the_same_as_absent() -> None:
    assert build("x", **dict.fromkeys(_SETTERS)) == build("x")


def test_zero_max_wait_is_present() -> None:
    request = build("x", max_wait=0)
    assert request.HasField("max_wait")


@pytest.mark.parametrize(
    ("degrade", "present", "ladder", "models"),
    [
        (None, False, False, []),
        ([], True, False, []),
        (False, True, False, []),
        (True, True, True, []),
        (["a"], True, False, ["a"]),
        (DegradePolicy(models=["b"], use_ladder=True), True, True, ["b"]),
    ],
)
def test_degrade_says_never_the_ladder_or_a_list(
    degrade: Any, present: bool, ladder: bool, models: list[str]
) -> None:
    request = build("x", degrade=degrade)
    assert request.HasField("degrade") == present
    assert request.degrade.use_ladder == ladder
    assert list(request.degrade.models) == models


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("prompt", {}),
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": 5}),
        ("prompt", {"prompt": "\ud800"}),
        ("prompt", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}),
        ("messages", {"messages": []}),
        ("messages", {"messages": "hi"}),
        ("messages[0]", {"messages": ["hi"]}),
        ("messages[0].role", {"messages": [{"content": "hi"}]}),
        ("messages[0]", {"messages": [{"role": "user", "contents": "hi"}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
        ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "x"}]}]}),
        ("request", {"request": "x"}),
        ("priority", {"prompt": "x", "priority": 11}),
        ("priority", {"prompt": "x", "priority": -1}),
        ("priority", {"prompt": "x", "priority": True}),
        ("priority", {"prompt": "x", "priority": 5.0}),
        ("timeout", {"prompt": "x", "timeout": -1}),
        ("timeout", {"prompt": "x", "timeout": 0}),
        ("timeout", {"prompt": "x", "timeout": "soon"}),
        ("max_wait", {"prompt": "x", "max_wait": math.nan}),
        ("degrade", {"prompt": "x", "degrade": "small"}),
        ("degrade", {"prompt": "x", "degrade": [1]}),
        ("model", {"prompt": "x", "model": 5}),
        ("labels", {"prompt": "x", "labels": {"a": 1}}),
        ("resume", {"prompt": "x", "resume": "again"}),
        ("temperature", {"prompt": "x", "temperature": math.nan}),
        ("temperature", {"prompt": "x", "temperature": math.inf}),
        ("temperature", {"prompt": "x", "temperature": "hot"}),
        ("max_tokens", {"prompt": "x", "max_tokens": "10"}),
        ("max_tokens", {"prompt": "x", "max_tokens": -1}),
        ("max_tokens", {"prompt": "x", "max_tokens": 2**63 - 1}),
        ("engine_options", {"prompt": "x", "engine_options": {"a": math.nan}}),
        ("tools", {"prompt": "x", "tools": [{}]}),
    ],
)
def test_bad_input_is_refused_by_field(field: str, arguments: dict[str, Any]) -> None:
    """Behaviours 82, 83, 84: what can be seen here is refused here."""
    assert refused(**arguments).field == field


def test_unknown_option_is_a_type_error_with_a_hint() -> None:
    with pytest.raises(TypeError, match="did you mean 'max_tokens'"):
        build("x", max_token=5)


def test_messages_keep_their_shape() -> None:
    request = build(
        messages=[
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "https://h/i.png"}},
                    {"type": "image_url", "image_url": "data:image/png;base64,AAEC"},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "4", "tool_call_id": "c"},
            ChatMessage(role="user", parts=[ContentPart(text="raw")]),
        ],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"big": 2**60}}}],
        tool_choice="auto",
    )
    system, user, assistant, tool, raw = request.chat.messages
    assert system.parts[0].text == "be brief"
    assert user.parts[1].image.uri == "https://h/i.png"
    assert user.parts[2].image.inline == b"\x00\x01\x02"
    assert user.parts[2].image.media_type == "image/png"
    assert assistant.tool_calls[0].name == "f"
    assert (tool.tool_call_id, raw.parts[0].text) == ("c", "raw")
    assert str(2**60) in request.chat.tools_json


def test_a_whole_request_is_copied_and_options_add_to_it() -> None:
    given = InferenceRequest(model="m")
    given.embedding.texts.append("x")
    request = build(request=given, priority=3)
    assert (request.model, request.priority, given.priority) == ("m", 3, 0)
