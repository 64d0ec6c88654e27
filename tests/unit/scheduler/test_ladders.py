"""Ladders of a model family: configured, checked, and permitted request by request."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.v1 import inference_pb2
from scheduler_service.config import SchedulerConfig
from scheduler_service.config_checks import find
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.validate import Limits

LADDERS = {
    "llama": [
        {"model": "70b"},
        {"model": "8b", "quality": 0.7},
        {"model": "tiny", "quality": 0.3},
    ],
    "other": ["x"],
}
MODELS = [{"name": "llama-8b", "aliases": ["8b"]}, "70b"]


def configured(**fields: Any) -> SchedulerConfig:
    return SchedulerConfig.model_validate({"ladders": LADDERS, "models": MODELS, **fields})


def test_models_go_down_their_own_ladder_only() -> None:
    types = configured().task_defaults()
    assert types.rungs_below("70b", 0.0) == ("llama-8b", "tiny")
    assert types.rungs_below("70b", 0.5) == ("llama-8b",)
    assert types.rungs_below("llama-8b", 0.0) == ("tiny",)
    assert types.rungs_below("tiny", 0.0) == ()
    assert types.rungs_below("unheard", 0.0) == ()


@pytest.mark.parametrize(
    ("ladders", "where"),
    [
        ({"a": ["x", "y"], "b": ["y"]}, "ladders.b[0]"),
        ({"a": ["8b", "llama-8b"]}, "ladders.a[1]"),
        ({"a": [{"model": "x", "quality": 0.5}, "y"]}, "ladders.a[1].quality"),
    ],
)
def test_contradictions_are_found(ladders: dict[str, Any], where: str) -> None:
    found = list(find(configured(ladders=ladders)))
    assert [finding.paths[0] for finding in found] == [where]


def test_good_ladders_are_not_complained_of() -> None:
    assert not list(find(configured()))


def degrade_of(**policy: Any) -> tuple[str, ...]:
    """The substitutes of a request that says so."""
    types = configured().task_defaults()
    assert isinstance(types, TaskTypes)
    converter = Converter(
        limits=Limits(), task_types=types, aliases={"8b": "llama-8b"}, max_attempts=3
    )
    message = inference_pb2.InferenceRequest(
        model="70b", degrade=inference_pb2.DegradePolicy(**policy)
    )
    message.text.prompt = "hello"
    parsed = converter.convert(
        message.SerializeToString(), rid=1, now=0, rpc_deadline=1 << 60, stream=False
    )
    return parsed.request.degrade


def test_request_that_permits_it_gets_the_rungs_after_its_own_list() -> None:
    assert degrade_of(use_ladder=True) == ("llama-8b", "tiny")
    assert degrade_of(use_ladder=True, min_quality=0.5) == ("llama-8b",)
    assert degrade_of(models=["tiny"], use_ladder=True) == ("tiny", "llama-8b")
    assert degrade_of(models=["8b"]) == ("llama-8b",)
    assert degrade_of() == ()
