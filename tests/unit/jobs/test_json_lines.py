"""What a line of a job's file means, and what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from batchyard.v1 import InferenceRequest
from scheduler_service.jobs.intake import check_defaults, fill_in
from scheduler_service.jobs.json_lines import read
from scheduler_service.rpc.validate import Refused


def line(url: str, **body: Any) -> bytes:
    given = {"custom_id": "c", "method": "POST", "url": url, "body": {"model": "m", **body}}
    return json.dumps(given).encode()


def test_own_form_is_a_job_item() -> None:
    item = read(b'{"custom_id":"a","request":{"text":{"prompt":"hi"},"params":{"maxTokens":3}}}')
    assert (item.custom_id, item.request.text.prompt) == ("a", "hi")
    assert item.request.params.max_tokens == 3


def test_chat_of_openai_keeps_all_that_it_says() -> None:
    item = read(
        line(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": "hi"}],
            max_completion_tokens=7,
            temperature=0.5,
            stop=["x"],
            logprobs=True,
            top_logprobs=2,
            user="u",
            metadata={"k": "v"},
            logit_bias={"5": 1.0},
            response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
            tools=[{"type": "function", "function": {"name": "f"}}],
            stream=False,
        )
    )
    request = item.request
    assert (item.custom_id, request.model, request.user_id) == ("c", "m", "u")
    assert request.chat.messages[0].parts[0].text == "hi"
    assert json.loads(request.chat.tools_json)[0]["function"]["name"] == "f"
    params = request.params
    assert (params.max_tokens, params.temperature, list(params.stop)) == (7, 0.5, ["x"])
    assert json.loads(params.json_schema) == {"type": "object"}
    assert dict(params.logit_bias) == {5: 1.0}
    assert request.output.logprobs == 2
    assert dict(request.labels) == {"k": "v"}


def test_completion_and_embedding_of_openai() -> None:
    assert read(line("/v1/completions", prompt="hi")).request.text.prompt == "hi"
    embedding = read(line("/v1/embeddings", input="a", dimensions=8)).request.embedding
    assert (list(embedding.texts), embedding.dimensions) == (["a"], 8)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (b"nonsense", ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b'{"custom_id":"\\ud800","request":{}}', ""),
        (b'{"custom_id":"a","request":"\\ud800"}', ""),
        (line("/v1/completions", prompt="x", **{"\ud800": 1}), ""),
        (line("/v1/embeddings", input="\ud800"), ""),
        ('{"custom_id":"a","request":{}}'.encode("utf-16"), ""),
        (b'{"custom_id":"a","url":["/v1/completions"],"body":{}}', "url"),
        (b'{"custom_id":"a","more":1}', "more"),
        (b'{"custom_id":"a","request":{"text":{"prompt":5}}}', ""),
        (b'{"custom_id":5,"url":"/v1/completions","body":{}}', "custom_id"),
        (line("/v1/images", prompt="x"), "url"),
        (line("/v1/completions", prompt=["a", "b"]), "body.prompt"),
        (line("/v1/completions", prompt="x", best_of=2), "body.best_of"),
        (line("/v1/completions", prompt="x", stream=True), "body.stream"),
        (line("/v1/completions", prompt="x", temperature="hot"), "body.temperature"),
        (line("/v1/chat/completions", prompt="x"), "body.messages"),
        (line("/v1/chat/completions", messages=[{"role": "user", "x": 1}]), "body.messages[0]"),
        (line("/v1/embeddings", input=[1, 2]), "body.input"),
        (line("/v1/embeddings", input="x", encoding_format="base64"), "body.encoding_format"),
    ],
)
def test_bad_line_is_refused_by_field(given: bytes, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read(given)
    assert refused.value.error.field == field


def test_defaults_fill_only_what_is_unset_and_messages_as_a_whole() -> None:
    defaults = InferenceRequest(model="d", priority=3)
    defaults.params.max_tokens = 9
    defaults.params.seed = 4
    request = InferenceRequest(priority=7)
    fill_in(request, defaults)
    assert (request.model, request.priority, request.params.max_tokens) == ("d", 7, 9)
    own = InferenceRequest()
    own.params.max_tokens = 1
    fill_in(own, defaults)
    assert not own.params.HasField("seed")


@pytest.mark.parametrize("name", ["request_id", "tenant", "labels", "text"])
def test_defaults_may_not_say_what_items_cannot_share(name: str) -> None:
    defaults = InferenceRequest(request_id="x" if name == "request_id" else "")
    if name == "tenant":
        defaults.tenant = "t"
    elif name == "labels":
        defaults.labels["k"] = "v"
    elif name == "text":
        defaults.text.prompt = "hi"
    with pytest.raises(Refused) as refused:
        check_defaults(defaults)
    assert refused.value.error.field == f"defaults.{name}"


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_KEYS = ("custom_id", "method", "url", "body", "request", "customId")
_BODY_KEYS = (
    "model", "messages", "prompt", "input", "n", "stop", "seed", "max_tokens", "response_format",
    "logprobs", "top_logprobs", "tools", "tool_choice", "user", "metadata", "logit_bias", "stream",
    "dimensions", "encoding_format",
)  # fmt: skip
_GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
}


@examples(
    st.sampled_from(sorted(_GOOD)),
    st.dictionaries(st.sampled_from(_BODY_KEYS), _ODD, max_size=2),
    st.dictionaries(st.sampled_from(_KEYS), _ODD, max_size=1),
)
def test_any_line_is_read_or_refused(
    url: str, wrong_body: dict[str, Any], wrong_line: dict[str, Any]
) -> None:
    """And what was read can be stored."""
    body = {"model": "m", **_GOOD[url], **wrong_body}
    given = {"custom_id": "c", "method": "POST", "url": url, "body": body, **wrong_line}
    try:
        item = read(json.dumps(given).encode())
    except Refused:
        return
    item.SerializeToString()
