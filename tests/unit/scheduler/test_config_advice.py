"""Settings that are valid and work against each other are told; those of a fresh file are not."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_service import config_advice, live_policy
from scheduler_service.config import SchedulerConfig


def advice(values: dict[str, Any]) -> set[str]:
    config = SchedulerConfig.model_validate({"state_dir": "state", **values})
    return {finding.paths[0] for finding in config_advice.find(config)}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"autoscale": {"enabled": True}}, "autoscale.actuator"),
        (
            {"autoscale": {"enabled": True, "actuator": "command", "command": ["x"]},
             "policies": {"autoscale": "fixed"}},
            "policies.autoscale",
        ),
        ({"task_types": {"chat": {"max_wait": "9s", "timeout": "9s"}}}, "task_types.chat.max_wait"),
        (
            {"task_types": {"chat": {"timeout": "2h"}}, "limits": {"max_timeout": "1h"}},
            "task_types.chat.timeout",
        ),
        (
            {"task_types": {"chat": {"degrade": ["s"]}}, "policies": {"degrade": "never"}},
            "task_types.chat.degrade",
        ),
        ({"ladders": {"f": ["m", "s"]}, "policies": {"degrade": "never"}}, "ladders.f"),
        ({"timeouts": {"idle": "9s", "total": "5s"}}, "timeouts.idle"),
        ({"hedging": {"enabled": True}, "failover": {"max_attempts": 1}}, "failover.max_attempts"),
        ({"queue": {"floor_every": 0}}, "queue.floor_every"),
        ({"queue": {"weights": {"a": 2}}, "policies": {"order": "fifo"}}, "queue.weights"),
        ({"state_dir": None}, "state_dir"),
    ],
)  # fmt: skip
def test_what_works_against_something_else_is_told(values: dict[str, Any], path: str) -> None:
    assert advice(values) == {path}


def test_of_the_defaults_nothing_is_told_but_that_nothing_is_kept() -> None:
    assert advice({}) == set()


def test_whoever_applies_a_policy_is_told_of_what_is_new_in_it() -> None:
    base = SchedulerConfig()
    draft = live_policy.read("queue: {floor_every: 0}", base)
    (warning,) = live_policy.warnings(draft, base)
    assert warning == "queue.floor_every is 0: under aged requests may wait for ever"
    assert not live_policy.warnings(draft, draft.config)
