"""From keyword arguments to an InferenceRequest, with the mistakes that are cheap to see refused.

One table, `_SETTERS`, says what each option does; None always means "not given". The server
remains the judge of everything: what is refused here would be refused there too.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from batchyard.chat import fill_chat
from batchyard.durations import Duration, parse_duration, write_duration
from batchyard.errors import InvalidRequest
from batchyard.v1 import ChatMessage, DegradePolicy, InferenceRequest, ResumeMode

__all__ = ["Degrade", "Message", "RequestOptions", "fill_request"]

Message = Mapping[str, Any] | ChatMessage
Degrade = bool | Sequence[str] | DegradePolicy


class RequestOptions(TypedDict, total=False):
    """What may be said about a request; every one is optional, and None is the same as absent."""

    model: str | None
    """Public model or route name; absent: the default of the task type."""
    task_type: str | None
    """"summarization", "classification", "chat", ...; selects the server's defaults."""
    priority: int | None
    """1..10, 10 = most urgent; absent or 0: the default of the task type, else 5."""
    max_wait: Duration | None
    """Longest time in the queue; then degrade if allowed, else fail."""
    timeout: Duration | None
    """Total budget, from receipt to the last token."""
    degrade: Degrade | None
    """Models that may answer instead, in order; True: the server's ladder; False or []: never."""
    tenant: str | None
    user_id: str | None
    request_id: str | None
    """Idempotency key; absent: a new one."""
    labels: Mapping[str, str] | None
    affinity_key: str | None
    """Same key prefers the same node."""
    resume: str | None
    """After partial output, if the node is lost: "continue", "fail" or "restart"."""
    max_attempts: int | None
    expected_output_tokens: int | None
    """An estimate for the scheduler; a wrong one hurts only this request's place."""
    max_tokens: int | None
    min_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    seed: int | None
    n: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    logit_bias: Mapping[int, float] | None
    json_schema: str | Mapping[str, Any] | None
    regex: str | None
    grammar: str | None
    json_object: bool | None
    engine_options: Mapping[str, Any] | None
    """Passed to the engine unread."""
    tools: Sequence[Mapping[str, Any]] | None
    """OpenAI-shaped tool definitions; with `messages` only."""
    tool_choice: str | None
    logprobs: int | None
    token_ids: bool | None
    """Also send token ids."""
    stream_usage: bool | None
    """Also send interim usage in a stream."""


def fill_request(
    target: InferenceRequest,
    prompt: str | None,
    messages: Sequence[Message] | None,
    request: InferenceRequest | None,
    options: Mapping[str, Any],
) -> None:
    """Writes into `target`, which is empty, what the caller said."""
    given = (prompt is not None) + (messages is not None) + (request is not None)
    if given != 1:
        raise _refusal(f"give exactly one of prompt, messages and request, not {given}", "prompt")
    if request is not None:
        _copy(target, request)
    elif prompt is not None:
        _fill_prompt(target, prompt)
    else:
        fill_chat(target.chat, messages)
    for name, value in options.items():
        if value is not None:
            _set(target, name, value)


def _copy(target: InferenceRequest, request: InferenceRequest) -> None:
    if not isinstance(request, InferenceRequest):
        raise _refusal(f"must be an InferenceRequest, not a {type(request).__name__}", "request")
    target.CopyFrom(request)


def _fill_prompt(target: InferenceRequest, prompt: str) -> None:
    if not isinstance(prompt, str):
        raise _refusal(f"must be text, not a {type(prompt).__name__}", "prompt")
    if not prompt:
        raise _refusal("must not be empty", "prompt")
    try:
        target.text.prompt = prompt
    except ValueError as error:
        raise _refusal(f"cannot be written as UTF-8: {error}", "prompt") from error


def _set(target: InferenceRequest, name: str, value: Any) -> None:
    setter = _SETTERS.get(name)
    if setter is None:
        near = difflib.get_close_matches(name, _SETTERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"unexpected keyword argument {name!r}{hint}")
    try:
        setter(target, value)
    except InvalidRequest:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _refusal(f"{value!r} is not valid: {error}", name) from error


def _set_priority(target: InferenceRequest, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(f"must be a whole number, not {value!r}", "priority")
    if not 0 <= value <= 10:
        raise _refusal(f"{value} is not in 1..10 (10 = most urgent; 0: the default)", "priority")
    target.priority = value


def _set_timeout(target: InferenceRequest, value: Duration) -> None:
    seconds = parse_duration(value, "timeout")
    if seconds == 0:
        raise _refusal("must be above 0; leave it out for no limit of your own", "timeout")
    write_duration(target.timeout, seconds)


def _set_max_wait(target: InferenceRequest, value: Duration) -> None:
    write_duration(target.max_wait, parse_duration(value, "max_wait"))
    target.max_wait.SetInParent()  # zero means: at once or not at all


def _set_degrade(target: InferenceRequest, value: Degrade) -> None:
    if isinstance(value, str):
        raise _refusal(f'must be a list of models, as in ["{value}"]', "degrade")
    target.degrade.SetInParent()  # present and empty: never
    if isinstance(value, DegradePolicy):
        target.degrade.CopyFrom(value)
    elif isinstance(value, bool):
        target.degrade.use_ladder = value
    else:
        target.degrade.models.extend(value)


def _set_labels(target: InferenceRequest, value: Mapping[str, str]) -> None:
    target.labels.update(value)


_RESUME_MODES = {
    "fail": ResumeMode.RESUME_MODE_FAIL,
    "continue": ResumeMode.RESUME_MODE_CONTINUE,
    "restart": ResumeMode.RESUME_MODE_RESTART,
}


def _set_resume(target: InferenceRequest, value: str) -> None:
    mode = _RESUME_MODES.get(value)
    if mode is None:
        raise _refusal(f'must be "continue", "fail" or "restart", not {value!r}', "resume")
    target.failover.resume_mode = mode


def _set_max_attempts(target: InferenceRequest, value: int) -> None:
    target.failover.max_attempts = value


def _set_expected_output_tokens(target: InferenceRequest, value: int) -> None:
    target.cost_hint.expected_output_tokens = value


def _set_stop(target: InferenceRequest, value: str | Sequence[str]) -> None:
    target.params.stop.extend([value] if isinstance(value, str) else value)


def _set_stop_token_ids(target: InferenceRequest, value: Iterable[int]) -> None:
    target.params.stop_token_ids.extend(value)


def _set_logit_bias(target: InferenceRequest, value: Mapping[int, float]) -> None:
    target.params.logit_bias.update(value)


def _set_json_schema(target: InferenceRequest, value: str | Mapping[str, Any]) -> None:
    target.params.json_schema = value if isinstance(value, str) else _json(value)


def _set_engine_options(target: InferenceRequest, value: Mapping[str, Any]) -> None:
    target.params.engine_options_json = _json(value)


def _set_tools(target: InferenceRequest, value: Sequence[Mapping[str, Any]]) -> None:
    _chat_only(target, "tools")
    target.chat.tools_json = _json(list(value))


def _set_tool_choice(target: InferenceRequest, value: str) -> None:
    _chat_only(target, "tool_choice")
    target.chat.tool_choice = value


def _chat_only(target: InferenceRequest, field: str) -> None:
    if not target.HasField("chat"):
        raise _refusal("needs messages=, not a prompt", field)


def _set_logprobs(target: InferenceRequest, value: int) -> None:
    target.output.logprobs = value


def _set_token_ids(target: InferenceRequest, value: bool) -> None:
    target.output.token_ids = value


def _set_stream_usage(target: InferenceRequest, value: bool) -> None:
    target.output.stream_usage = value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _scalar(name: str) -> Callable[[InferenceRequest, Any], None]:
    def write(target: InferenceRequest, value: Any) -> None:
        setattr(target, name, value)

    return write


def _parameter(name: str) -> Callable[[InferenceRequest, Any], None]:
    def write(target: InferenceRequest, value: Any) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise _refusal(f"must be finite, not {value}", name)
        setattr(target.params, name, value)

    return write


_SETTERS: dict[str, Callable[[InferenceRequest, Any], None]] = {
    "model": _scalar("model"),
    "task_type": _scalar("task_type"),
    "priority": _set_priority,
    "max_wait": _set_max_wait,
    "timeout": _set_timeout,
    "degrade": _set_degrade,
    "tenant": _scalar("tenant"),
    "user_id": _scalar("user_id"),
    "request_id": _scalar("request_id"),
    "labels": _set_labels,
    "affinity_key": _scalar("affinity_key"),
    "resume": _set_resume,
    "max_attempts": _set_max_attempts,
    "expected_output_tokens": _set_expected_output_tokens,
    "max_tokens": _parameter("max_tokens"),
    "min_tokens": _parameter("min_tokens"),
    "temperature": _parameter("temperature"),
    "top_p": _parameter("top_p"),
    "top_k": _parameter("top_k"),
    "min_p": _parameter("min_p"),
    "frequency_penalty": _parameter("frequency_penalty"),
    "presence_penalty": _parameter("presence_penalty"),
    "repetition_penalty": _parameter("repetition_penalty"),
    "seed": _parameter("seed"),
    "n": _parameter("n"),
    "stop": _set_stop,
    "stop_token_ids": _set_stop_token_ids,
    "ignore_eos": _parameter("ignore_eos"),
    "logit_bias": _set_logit_bias,
    "json_schema": _set_json_schema,
    "regex": _parameter("regex"),
    "grammar": _parameter("grammar"),
    "json_object": _parameter("json_object"),
    "engine_options": _set_engine_options,
    "tools": _set_tools,
    "tool_choice": _set_tool_choice,
    "logprobs": _set_logprobs,
    "token_ids": _set_token_ids,
    "stream_usage": _set_stream_usage,
}


def _refusal(problem: str, field: str) -> InvalidRequest:
    return InvalidRequest(problem, reason="INVALID_ARGUMENT", field=field)
