"""`batchyard policy`: what is in force, what would change in plain words, and other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from batchyard.cli.policy_file import differences, lay_settings
from batchyard.cli.policy_words import words_of
from batchyard.v1 import admin_service_pb2 as admin
from scheduler_service import live_policy
from scheduler_service.config import SchedulerConfig
from tests.unit.cli.scripted import Refusal, Scripted

IN_FORCE = live_policy.write(SchedulerConfig())
EVERYTHING = """
policies:
  order: {name: aged, options: {levels: 3}}
  order_by_model: {m: {name: aged, options: {levels: 3}}}
queue: {weights: {gold: 2.0}}
timeouts: {first_output: 1s, idle: 1s, total: 1s,
           by_model: {m: {first_output: 1s, idle: 1s, total: 1s}}}
hedging: {by_model: {m: {enabled: true, share: 0.1, least_delay: 1s}}}
task_types: {chat: {model: m, max_wait: 1s, timeout: 1s}}
ladders: {family: [m, s]}
default_model: m
"""


def answers(request: admin.UpdatePolicyRequest) -> Any:
    """As the scheduler does."""
    draft = live_policy.read(request.policy.yaml, SchedulerConfig())
    text = live_policy.write(draft.config)
    policy = admin.Policy(yaml=text, etag=live_policy.etag_of(text))
    return admin.UpdatePolicyResponse(
        policy=policy, previous_yaml=IN_FORCE, warnings=draft.left_alone
    )


@pytest.fixture
def served(scripted: Scripted) -> Scripted:
    policy = admin.Policy(yaml=IN_FORCE, etag="abc1")
    scripted.on("GetPolicy", admin.GetPolicyResponse(policy=policy))
    return scripted.on("UpdatePolicy", answers)


def test_every_live_setting_is_told_in_plain_words() -> None:
    whole = live_policy.read(EVERYTHING, SchedulerConfig()).config
    for row in differences("{}", live_policy.write(whole)):
        value = row["then"]
        empty = value in ({}, [])
        assert words_of(row["setting"]) or empty, row["setting"]
    assert words_of("never.heard") == ""


def test_what_is_shown_can_be_changed_and_applied(
    against: Any, served: Scripted, tmp_path: Path
) -> None:
    """The etag travels in the file: what was changed by another meanwhile is not lost."""
    shown = against("policy", "show").out
    assert shown.startswith("# etag: abc1\n# as the scheduler started\n")
    assert yaml.safe_load(shown) == yaml.safe_load(IN_FORCE)
    file = tmp_path / "night.yaml"
    file.write_text(shown.replace("order: aged", "order: fifo"), encoding="utf-8")
    done = against("policy", "apply", str(file), "--reason", "night", "-o", "json")
    assert done.exit_code == 0, done.out
    (asked,) = served.requests("UpdatePolicy")
    assert (asked.policy.etag, asked.reason, asked.validate_only) == ("abc1", "night", False)
    assert done.json["applied"] is True
    assert done.json["changes"] == [
        {
            "setting": "policies.order",
            "now": "aged",
            "then": "fifo",
            "decides": "which waiting request goes next",
        }
    ]


def test_who_applied_it_is_shown_and_that_a_restart_ends_it(
    against: Any, scripted: Scripted
) -> None:
    policy = admin.Policy(yaml=IN_FORCE, etag="abc1", updated_by="alice")
    policy.update_time.FromJsonString("2026-01-02T03:04:05Z")
    scripted.on("GetPolicy", admin.GetPolicyResponse(policy=policy))
    line = against("policy", "show").lines[1]
    assert line == (
        "# applied by alice at 2026-01-02 03:04:05 UTC; lost when the scheduler restarts"
    )
    assert against("policy", "show", "-o", "name").lines == ["abc1"]
    assert against("policy", "show", "-o", "json").json["updated_by"] == "alice"


def test_a_file_is_compared_by_the_server_and_nothing_is_changed(
    against: Any, served: Scripted, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("policies: {order: edf}\nlisten: {client_port: 7000}\n", encoding="utf-8")
    done = against("policy", "diff", str(file), "-o", "json")
    assert [row["setting"] for row in done.json["changes"]] == ["policies.order"]
    assert done.json["applied"] is False
    assert done.json["warnings"] == ["listen.client_port"]
    (asked,) = served.requests("UpdatePolicy")
    assert (asked.validate_only, asked.policy.etag) == (True, "")


def test_settings_are_laid_over_what_is_in_force(against: Any, served: Scripted) -> None:
    done = against("policy", "apply", "policies.order=fifo; queue.floor_every=2", "--dry-run")
    assert done.exit_code == 0
    (asked,) = served.requests("UpdatePolicy")
    assert asked.validate_only
    assert asked.policy.etag == "abc1"
    values = yaml.safe_load(asked.policy.yaml)
    assert values["policies"]["order"] == "fifo"
    assert values["queue"] == {**yaml.safe_load(IN_FORCE)["queue"], "floor_every": 2}


def test_an_option_may_be_set_of_a_policy_that_has_none() -> None:
    values = yaml.safe_load(lay_settings("policies.order.options.levels=3", IN_FORCE))
    assert values["policies"]["order"] == {"name": "aged", "options": {"levels": 3}}


def test_what_cannot_be_read_is_a_usage_error(against: Any, served: Scripted) -> None:
    for bad in ("nowhere.yaml", "policies.order=[", "=fifo"):
        assert against("policy", "apply", bad).exit_code == 2, bad
    assert not served.requests("UpdatePolicy")


def test_a_stale_etag_says_what_to_do(against: Any, served: Scripted) -> None:
    refusal = Refusal(grpc.StatusCode.ABORTED, "ETAG_MISMATCH", "the policy was changed", etag="x")
    served.on("UpdatePolicy", refusal)
    done = against("policy", "apply", "queue.headroom=1", "--etag", "old")
    assert done.exit_code == 1
    assert served.requests("UpdatePolicy")[0].policy.etag == "old"
    assert "batchyard policy show" in done.err
