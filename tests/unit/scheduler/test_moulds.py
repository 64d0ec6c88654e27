"""Requests that are read without being parsed mean what a parser finds in them."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from batchyard.v1 import inference_pb2 as pb
from batchyard.v1 import types_pb2
from scheduler_service.core.types import NEVER
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.moulds import Mould
from scheduler_service.rpc.validate import Limits, Refused


def converter(**defaults: Any) -> Converter:
    task_types = TaskTypes({"chat": TaskDefaults(**defaults)} if defaults else {})
    return Converter(limits=Limits(), task_types=task_types, aliases={}, max_attempts=3)


def asked(prompt: str = "Hello", request_id: str = "r1", **fields: Any) -> bytes:
    fields.setdefault("model", "m")
    request = pb.InferenceRequest(request_id=request_id, text=pb.TextInput(prompt=prompt), **fields)
    return request.SerializeToString()


def convert(by: Converter, data: bytes) -> object:
    """All that comes of it, in a form that compares."""
    try:
        parsed = by.convert(data, rid=7, now=5, rpc_deadline=NEVER, stream=False)
    except Refused as refused:
        return refused.error
    request = parsed.request
    if not parsed.named:
        request.request_id = ""  # each converter gives its own
    said = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    return said, parsed.given, parsed.named, dict(parsed.labels or {}), parsed.trace


def counts_casts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []
    read = Mould.read

    def counted(self: Mould, data: bytes) -> tuple[str, str] | None:
        found = read(self, data)
        if found is not None:
            seen.append(data)
        return found

    monkeypatch.setattr(Mould, "read", counted)
    return seen


PARAMS = pb.GenerationParams(max_tokens=3, stop=["x"])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": 9, "tenant": "t", "user_id": "u", "params": PARAMS},
        {"task_type": "chat", "degrade": pb.DegradePolicy(models=["small"]), "params": PARAMS},
    ],
)
def test_request_like_the_last_one_is_not_parsed_and_means_the_same(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    casts = counts_casts(monkeypatch)
    warm = converter()
    convert(warm, asked(**fields))
    likes = [("a", "b-2"), ("é" * 63, ""), ("x" * 127, "r" * 64), ("y" * 9_000, "z"), ("4\n", "4")]
    for prompt, request_id in likes:
        data = asked(prompt, request_id, **fields)
        assert convert(warm, data) == convert(converter(), data)
    assert len(casts) == len(likes)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "other"},
        {"priority": 3},
        {"affinity_key": "k"},
        {"labels": {"a": "b"}},
        {"trace": types_pb2.TraceContext(traceparent="00-" + "a" * 52)},
        {"params": PARAMS},
        {"request_id": "r" * 65},
        {"request_id": "sp ace"},
        {"prompt": ""},
        {"prompt": "  \n"},
        {"prompt": "z" * 20_000},
    ],
)
def test_request_unlike_the_last_one_is_seen_for_what_it_is(fields: dict[str, Any]) -> None:
    warm = converter()
    for data in (asked(), asked(**fields), asked(), asked(**fields)):
        assert convert(warm, data) == convert(converter(), data)


def test_damaged_bytes_mean_what_a_parser_finds_in_them() -> None:
    chance, warm = random.Random(5), converter()
    sound = asked("Hello there", "r-12", priority=4, params=PARAMS)
    for _ in range(4_000):
        convert(warm, sound)
        data = bytearray(sound)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            how = chance.randrange(3)
            if how == 0:
                data[at] = chance.randrange(256)
            elif how == 1:
                del data[at : at + chance.randint(1, 4)]
            else:
                data[at:at] = data[chance.randrange(len(data)) :][: chance.randint(1, 6)]
            if not data:
                break
        assert convert(warm, bytes(data)) == convert(converter(), bytes(data)), bytes(data)


def test_changed_defaults_hold_from_the_next_request_on() -> None:
    changing = converter(priority=3)
    data = asked(task_type="chat")
    for priority in (3, 8):
        if priority == 8:
            changing.retune(TaskTypes({"chat": TaskDefaults(priority=8)}), 5)
        for _ in range(2):
            parsed = changing.convert(data, rid=1, now=0, rpc_deadline=NEVER, stream=False)
            assert parsed.request.priority == priority
    assert parsed.request.max_attempts == 5
