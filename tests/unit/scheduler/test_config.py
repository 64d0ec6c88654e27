"""The scheduler's configuration: sources, units, and all faults at once."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from scheduler_service import policies
from scheduler_service.config import SchedulerConfig
from scheduler_service.config_policies import READ, option_fields
from scheduler_service.config_sources import ConfigError, LoadedConfig, check_file, load
from scheduler_service.core.settings import CoreSettings, Patience
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND
from scheduler_service.policies.ordering import Strict

ROOT = Path(__file__).parents[3]


def read(
    folder: Path, text: str, *flags: str, environ: dict[str, str] | None = None
) -> LoadedConfig:
    path = folder / "scheduler.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ=environ or {}, flags=flags)


def faults(folder: Path, text: str, *flags: str, environ: dict[str, str] | None = None) -> str:
    """All that is wrong, the file's folder left out."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text, *flags, environ=environ)
    return str(caught.value).replace(f"{folder}/", "")


def test_without_any_source_the_defaults_are_those_of_the_core(tmp_path: Path) -> None:
    loaded = load(None, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert loaded.path is None
    assert loaded.config.core_settings(term=1) == CoreSettings()
    assert loaded.config.policy_set(seed=0) == policies.build()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        "queue: {max_requests: 1, floor_every: 2, max_bytes: 3MiB}",
        "queue.max_requests=100",
        environ={
            "BATCHYARD_SCHEDULER__QUEUE__MAX_REQUESTS": "10",
            "BATCHYARD_SCHEDULER__QUEUE__FLOOR_EVERY": "20",
            "BATCHYARD_ADDRESS": "elsewhere:1",
        },
    )
    queue = loaded.config.queue
    assert (queue.max_requests, queue.floor_every, queue.max_bytes) == (100, 20, 3 << 20)
    assert loaded.origins["queue.max_requests"] == "flag"
    assert loaded.origins["queue.floor_every"] == "env BATCHYARD_SCHEDULER__QUEUE__FLOOR_EVERY"
    assert loaded.origins["queue.max_bytes"].endswith("scheduler.yaml:1")


def test_the_users_file_is_found_before_the_machines(tmp_path: Path) -> None:
    (tmp_path / "batchyard").mkdir()
    (tmp_path / "batchyard" / "scheduler.yaml").write_text("log: {level: debug}")
    loaded = load(None, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert loaded.config.log.level == "debug"


def test_all_faults_are_reported_at_once_each_with_its_place(tmp_path: Path) -> None:
    text = """
listen:
  client_prt: 1
  http_port: many
health: {session_timeout: 2s, report_interval: 3}
autoscale: {min: 5, max: 2}
policies: {order: agd, batch: {name: windowed, options: {longest_wai: 1s, margin: 5}}}
"""
    told = faults(
        tmp_path, text, "log.level=loud", environ={"BATCHYARD_SCHEDULER__QUEUE__MAX_BYTES": "9"}
    )
    duration = 'is no duration: write a number and a unit, as "20ms", "3s", "1m30s"'
    size = 'is no size: write a number and its unit, as "64MiB", "100MB", "512B"'
    silent = "must be above twice the heartbeat_interval, which is 1s, or healthy nodes look silent"
    longest = 'is no option of windowed; did you mean "longest_wait"?'
    levels = "'error', 'warning', 'info', 'debug' or 'trace'"
    assert told.splitlines() == [
        "listen.http_port (scheduler.yaml:4): 'many' should be a valid integer",
        'listen.client_prt (scheduler.yaml:3): is no key here; did you mean "client_port"?',
        f"queue.max_bytes (env BATCHYARD_SCHEDULER__QUEUE__MAX_BYTES): 9 {size}",
        f"health.report_interval (scheduler.yaml:5): 3 {duration}",
        f"log.level (flag): 'loud' should be {levels}",
        f"health.session_timeout (scheduler.yaml:5): is 2s; it {silent}",
        "autoscale.min (scheduler.yaml:6): is 5, above max, which is 2",
        'policies.order.name (scheduler.yaml:7): there is no policy "agd"; did you mean "aged"?',
        f"policies.batch.options.longest_wai (scheduler.yaml:7): {longest}",
        f"policies.batch.options.margin (scheduler.yaml:7): 5 {duration}",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listen: {http_port: 7613}", "listen.http_port: is 7613, as admin_port"),
        ("limits: {max_request_bytes: 64MiB}", "not below max_message_bytes, which is 64MiB"),
        ("limits: {max_message_bytes: 2GiB}", "must be below 2GiB"),
        ("failover: {backoff_base: 3s}", "is longer than backoff_max"),
        ("failover: {max_attempts: 11}", "less than or equal to 10"),
        ("autoscale: {enabled: true, actuator: process}", "autoscale.process.agent_config"),
        ("autoscale: {enabled: true, actuator: command}", "autoscale.command"),
        ("autoscale: {enabled: 1}", "1 should be a valid boolean"),
        ("task_types: {qa: {}}", 'is an alias; write "question_answering"'),
        ("task_types: {Chat: {}}", "must be lower_snake_case"),
        ("task_types: {chat: {priority: 0}}", "0 should be greater than or equal to 1"),
        ("models: [a]\ntask_types: {chat: {model: b}}", '"b" is not listed in models'),
        ("models: [gemma]\ntask_types: {chat: {degrade: [gema]}}", 'did you mean "gemma"?'),
        ("policies: {failover: {name: backoff, options: {seed: 1}}}", "section `failover`"),
        ("policies: {order: {name: aged, options: {levels: -1}}}", "-1 is no whole number"),
        ("policies: {admission: {name: bounded, options: {caution: .nan}}}", "nan is no number"),
        ("policies: {order: {nme: aged}}", 'did you mean "name"?'),
        ("queue: {max_bytes: 1GiB}\nqueue: {}", "queue: stands there twice"),
        ("version: 2", "version: 2 should be 1"),
        ("queue: 3", "queue: 3 should be a section"),
        ("task_types: {1: {}}", "should be a valid string"),
        ("[1]", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_do(tmp_path: Path, text: str, fault: str) -> None:
    assert fault in re.sub(r" \(scheduler\.yaml:\d+\)", "", faults(tmp_path, text))


def test_flags_and_environment_must_be_whole(tmp_path: Path) -> None:
    told = faults(
        tmp_path, "", "log.level", "queue.max_bytes=[", environ={"BATCHYARD_SCHEDULER__LOGS": "1"}
    )
    assert 'flag "log.level": write it as section.key=value' in told
    assert "queue.max_bytes (flag): '[' is not YAML" in told
    assert 'logs (env BATCHYARD_SCHEDULER__LOGS): is no key here; did you mean "log"?' in told


def test_the_grpc_services_may_share_a_port(tmp_path: Path) -> None:
    listen = read(tmp_path, "listen: {client_port: 1, node_port: 1, admin_port: 1}").config.listen
    assert listen.client_port == listen.node_port == listen.admin_port == 1


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.yaml", environ={})


def test_a_degrade_circle_is_refused(tmp_path: Path) -> None:
    """Behaviour 68: A -> B -> A, and A -> A through an alias."""
    long = "task_types: {chat: {model: a, degrade: [c, b]}, other: {model: b, degrade: [a]}}"
    assert "goes in a circle: a -> b -> a" in faults(tmp_path, long)
    short = "models: [{name: a, aliases: [x]}]\ntask_types: {chat: {model: a, degrade: [x]}}"
    assert "goes in a circle: a -> a" in faults(tmp_path, short)


def test_a_degrade_ladder_without_a_circle_is_taken(tmp_path: Path) -> None:
    text = "task_types: {chat: {model: a, degrade: [b, c]}, other: {model: b, degrade: [c]}}"
    assert read(tmp_path, text).config.task_types["chat"].degrade == ("b", "c")


def test_a_clash_of_model_names_names_both_models(tmp_path: Path) -> None:
    """Behaviour 98: one alias of two models; an alias that is a name; case and spaces."""
    told = faults(
        tmp_path,
        "models: [{name: a, aliases: [x, c]}, {name: b, aliases: [x]}, c, {name: 'My Model'}, "
        "mymodel]",
    )
    assert 'the alias "x" of model "b" is taken by "x" of model "a"' in told
    assert 'the name "c" of model "c" is taken by "c" of model "a"' in told
    assert 'the name "mymodel" of model "mymodel" is taken by "My Model" of model' in told


def test_a_task_type_is_laid_over_the_built_in_one(tmp_path: Path) -> None:
    text = """
models: [{name: big, aliases: [b]}, small]
task_types: {chat: {model: b, degrade: [small], max_wait: 2s}, mine: {priority: 9}}
"""
    config = read(tmp_path, text).config
    types = config.task_defaults()
    name, chat = types.resolve("chat")
    assert (name, chat.model, chat.degrade) == ("chat", "big", ("small",))
    assert (chat.max_wait, chat.timeout) == (2 * SECOND, NEVER)
    assert chat.output_tokens == SchedulerConfig().task_defaults().types["chat"].output_tokens > 0
    assert types.resolve("mine")[1].priority == 9
    assert types.resolve("qa")[0] == "question_answering"
    assert config.aliases() == {"b": "big"}
    assert config.core_settings(term=1).known_models == {"big", "small"}


def test_policies_get_their_options_and_their_sections(tmp_path: Path) -> None:
    chosen = read(
        tmp_path,
        "policies: {order: strict, batch: {name: windowed, options: {longest_wait: 20ms}}}\n"
        "failover: {backoff_max: 9s}\nautoscale: {queue: 7, idle: 3s}",
    ).config.policy_set(seed=5)
    assert chosen.ordering == Strict()
    assert chosen.former == policies.batching.Windowed(longest_wait=20 * MILLISECOND)
    assert chosen.failover.settings.backoff_max == 9 * SECOND  # type: ignore[attr-defined]
    assert chosen.failover.seed == 5  # type: ignore[attr-defined]
    assert chosen.autoscale == policies.autoscale.Threshold(queue=7, idle=3 * SECOND)


@pytest.mark.parametrize("question", sorted(policies.DEFAULTS))
def test_every_option_of_every_policy_can_be_configured(question: str) -> None:
    for name in policies.REGISTRY[question]:
        for option in option_fields(question, name):
            assert option.type in READ, f"{question} {name}: {option.name} is a {option.type}"


def test_check_config_says_all_and_returns_one(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("quue: {}\nlog: {level: loud}")
    out = io.StringIO()
    assert check_file(path, environ={}, out=out) == 1
    assert len(out.getvalue().splitlines()) == 3
    path.write_text("log: {level: debug}")
    out = io.StringIO()
    assert check_file(path, environ={}, out=out) == 0
    assert out.getvalue() == f"{path}: valid\n"


def test_the_file_of_the_composition_is_valid() -> None:
    assert load(ROOT / "deploy" / "scheduler.yaml", environ={}).config.state_dir is not None


def test_the_default_model_serves_requests_that_name_none() -> None:
    loaded = load(None, environ={}, flags=["default_model=m", "task_types.chat.model=c"])
    types = loaded.config.task_defaults()
    assert types.resolve("qa")[1].model == "m"
    assert types.resolve("of_their_own")[1].model == "m"
    assert types.resolve("chat")[1].model == "c"


def test_the_default_model_must_be_a_known_one() -> None:
    with pytest.raises(ConfigError, match="default_model"):
        load(None, environ={}, flags=["models=[a]", "default_model=b"])


def test_timeouts_of_a_model_are_laid_over_the_general_ones() -> None:
    config = SchedulerConfig(
        models=[{"name": "large", "aliases": ["big"]}],  # type: ignore[arg-type]
        timeouts={"idle": "10s", "by_model": {"big": {"first_output": "2s"}}},  # type: ignore[arg-type]
    )
    failover = config.core_settings(term=1).failover
    assert failover.patience == Patience(idle=10 * SECOND)
    assert failover.patience_by_model == {
        "large": Patience(idle=10 * SECOND, first_output=2 * SECOND)
    }
