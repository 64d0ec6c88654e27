"""agent.yaml, the environment and flags: what wins, and what is said when it is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_agent import arguments
from node_agent.config import AgentConfig, default_node_id
from node_agent.config_sources import ConfigError, load
from node_agent.engines.registry import build_engine
from node_agent.own_id import claim, visible_gpus

ROOT = Path(__file__).parents[3]
ENGINES = [{"kind": "simulated"}]


def loaded(
    tmp_path: Path,
    file: dict[str, Any] | str | None = None,
    environ: dict[str, str] | None = None,
    **flags: Any,
) -> AgentConfig:
    path = None
    if file is not None:
        path = tmp_path / "agent.yaml"
        path.write_text(file if isinstance(file, str) else yaml.safe_dump(file))
    environ = {"HOME": str(tmp_path), **(environ or {})}
    return load(path=path, environ=environ, flags=flags, check_engine=check).config


def check(engine_id: str, kind: str, options: dict[str, Any]) -> object:
    return build_engine(engine_id=engine_id, kind=kind, options=options)


def problems(tmp_path: Path, *args: Any, **flags: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, *args, **flags)
    return caught.value.problems


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    config = loaded(tmp_path, engines=ENGINES)
    assert config.scheduler.address == "127.0.0.1:7612"
    assert (config.reconnect.first, config.reconnect.longest) == (0.2, 5.0)
    assert config.drain_grace == 30.0
    assert config.role == "primary"
    assert config.engines[0].engine_id == "simulated"


def test_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    file = {"pool": "file", "zone": "file", "role": "backup", "engines": ENGINES}
    environ = {"BATCHYARD_AGENT__POOL": "env", "BATCHYARD_AGENT__ZONE": "env"}
    config = loaded(tmp_path, file, environ, pool="flag")
    assert (config.pool, config.zone, config.role) == ("flag", "env", "backup")


def test_environment_reaches_sections_and_lists(tmp_path: Path) -> None:
    environ = {
        "BATCHYARD_AGENT__SCHEDULER__ADDRESS": "scheduler.local:7612",
        "BATCHYARD_AGENT__SCHEDULER__INSECURE": "true",
        "BATCHYARD_AGENT__ENGINES": "[{kind: simulated, slots: 3}]",
        "BATCHYARD_AGENT__LABELS__GPU": '"1"',
    }
    config = loaded(tmp_path, None, environ)
    assert config.scheduler.address == "scheduler.local:7612"
    assert config.engines[0].options == {"slots": 3}
    assert config.labels == {"gpu": "1"}


def test_the_origin_of_each_value_is_known(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("pool: a\nzone: b\n")
    environ = {"BATCHYARD_AGENT__ZONE": "c"}
    result = load(path=path, environ=environ, flags={"engines": ENGINES})
    assert result.origins["pool"] == f"{path}:1"
    assert result.origins["zone"] == "env BATCHYARD_AGENT__ZONE"
    assert result.origins["engines"] == "flag"


def test_all_errors_come_at_once_with_path_source_and_a_guess(tmp_path: Path) -> None:
    file = {
        "scheduler": {"adress": "x"},
        "drain_grace": 30,
        "roel": "backup",
        "engines": [{"kind": "simulated", "slot": 3}, {"kind": "nope"}],
        "price_per_hour": "cheap",
    }
    found = "\n".join(problems(tmp_path, file))
    assert "scheduler.adress" in found
    assert 'did you mean "address"?' in found
    assert "roel" in found
    assert 'did you mean "role"?' in found
    assert "agent.yaml" in found
    assert "drain_grace" in found
    assert "write a number and a unit" in found
    assert "engines[0]" in found
    assert "slot" in found
    assert "engines[1]" in found
    assert "'cheap' is not a price" in found


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"engines": []}, "at least one engine"),
        ({"engines": [{"kind": "simulated", "id": "a"}] * 2}, "an `id` of its own"),
        ({"node_id": "a b"}, "node_id"),
        ({"node_id": "x" * 65}, "node_id"),
        ({"scheduler": {"address": "nohost"}}, "host:port"),
        ({"scheduler": {"address": "h:99999"}}, "host:port"),
        ({"version": 2}, "version"),
        ({"role": "spare"}, "role"),
        ({"task_types": ["Chat!"]}, "lower_snake_case"),
        ({"reconnect": {"first": "9s"}}, "longer than longest"),
        ({"labels": {str(n): "x" for n in range(17)}}, "at most 16"),
        ({"log": {"level": "loud"}}, "log.level"),
        ({"metrics": {"listen": "7614"}}, "host:port"),
        ({"metrics": {"listen": "0.0.0.0:7614"}}, "metrics.insecure"),
    ],
)
def test_a_bad_value_is_refused_by_name(tmp_path: Path, flags: dict[str, Any], words: str) -> None:
    found = problems(tmp_path, **{"engines": ENGINES, **flags})
    assert len(found) == 1
    assert words in found[0]


def test_a_file_that_is_no_yaml_or_no_mapping_says_so(tmp_path: Path) -> None:
    assert "is not YAML" in problems(tmp_path, "a: [")[0]
    assert "must be a mapping" in problems(tmp_path, "- a")[0]
    with pytest.raises(ConfigError, match="cannot be read"):
        load(path=tmp_path / "none", environ={}, flags={})


def test_the_file_in_the_home_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "batchyard"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("pool: home\nengines: [{kind: simulated}]\n")
    assert loaded(tmp_path).pool == "home"


def test_task_type_aliases_are_taken(tmp_path: Path) -> None:
    config = loaded(tmp_path, engines=ENGINES, task_types=["qa", "code", "chat"])
    assert config.task_types == ("question_answering", "code_generation", "chat")


def test_a_price_is_exact(tmp_path: Path) -> None:
    price = loaded(tmp_path, engines=ENGINES, price_per_hour="2.5 USD").price_per_hour
    assert price is not None
    assert (price.currency, price.micros) == ("USD", 2_500_000)


def test_every_key_is_documented_and_in_the_example() -> None:
    example = yaml.safe_load((ROOT / "deploy" / "agent.example.yaml").read_text())
    assert set(example) == set(AgentConfig.model_fields)
    defaults = AgentConfig.model_validate({"engines": ENGINES})
    values = AgentConfig.model_validate(example)
    for name, field in AgentConfig.model_fields.items():
        section = field.annotation
        keys = getattr(section, "model_fields", {})
        assert field.description or all(key.description for key in keys.values()), name
        if keys:
            assert set(example[name]) == set(keys)
        if name not in ("engines", "price_per_hour"):
            assert getattr(values, name) == getattr(defaults, name), name


# The default node id.


def node_id(engines: list[dict[str, Any]], path: str = "", host: str = "box.example.org") -> str:
    return default_node_id(AgentConfig.model_validate({"engines": engines}), host, path)


def test_default_node_id_is_host_and_the_engines_port() -> None:
    assert node_id([{"kind": "x", "port": 8081}]) == "box-8081"
    assert node_id([{"kind": "x", "url": "http://127.0.0.1:8000/v1"}]) == "box-8000"


def test_default_node_ids_of_two_agents_on_one_host_differ_and_are_stable() -> None:
    one = node_id([{"kind": "simulated", "slots": 1}])
    assert one == node_id([{"kind": "simulated", "slots": 1}])
    assert one != node_id([{"kind": "simulated", "slots": 2}])
    assert one != node_id([{"kind": "simulated", "slots": 1}], path="/etc/batchyard/two.yaml")
    assert one.startswith("box-")
    assert len(node_id([{"kind": "x"}], host="h" * 200)) <= 64


def ids_of(*engines: dict[str, Any]) -> list[str]:
    config = AgentConfig.model_validate({"engines": list(engines)})
    return [engine.engine_id for engine in config.engines]


def test_engines_that_nobody_named_are_told_apart() -> None:
    """By their ports, which stay whatever else is added; else by their places."""
    urls = [{"kind": "openai", "url": f"http://127.0.0.1:{port}"} for port in (8000, 8001)]
    assert ids_of(*urls) == ["openai-8000", "openai-8001"]
    assert ids_of(urls[0], {"kind": "simulated"}) == ["openai", "simulated"]
    child = {"kind": "vllm", "model": "m"}
    assert ids_of(child, child, child) == ["vllm", "vllm-2", "vllm-3"]
    assert ids_of(child, {**child, "id": "big"}) == ["vllm", "big"]
    assert ids_of(urls[0], urls[0]) == ["openai", "openai-2"]


def test_agents_of_one_command_on_one_host_get_ids_of_their_own(tmp_path: Path) -> None:
    """The first id comes back when its holder is gone; GPUs that a process may see tell, too."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    first, second = claim("box-abc", environ), claim("box-abc", environ)
    assert (first.node_id, second.node_id) == ("box-abc", "box-abc-2")
    first.release()
    assert claim("box-abc", environ).node_id == "box-abc"
    config = AgentConfig.model_validate({"engines": ENGINES})
    seen = [visible_gpus({"CUDA_VISIBLE_DEVICES": gpu}) for gpu in "01"]
    ids = {default_node_id(config, "box", "", gpus) for gpus in [*seen, []]}
    assert len(ids) == 3
    (tmp_path / f"batchyard-{os.getuid()}").chmod(0o777)  # others could have their hand in it
    assert {claim("box-abc", environ).node_id for _ in range(2)} == {"box-abc"}


# The command line.


def test_flags_become_keys_of_the_file() -> None:
    parsed = arguments.parse(
        ["-c", "a.yaml", "--scheduler", "h:1", "--node-id", "n", "--engine", "simulated",
         "--engine-option", "slots=2", "--engine", "llamacpp", "--engine-option", "id=big",
         "--label", "rack=7", "--managed", "--set", "reconnect.first=1s", "--log-level", "debug"]
    )  # fmt: skip
    assert parsed.config == Path("a.yaml")
    assert parsed.flags == {
        "scheduler": {"address": "h:1"},
        "node_id": "n",
        "engines": [{"kind": "simulated", "slots": 2}, {"kind": "llamacpp", "id": "big"}],
        "labels": {"rack": "7", "batchyard.managed": "true"},
        "reconnect": {"first": "1s"},
        "log": {"level": "debug"},
    }


def test_a_url_is_enough_for_an_engine() -> None:
    """Each further one is another; after an --engine of its own kind it belongs to that."""
    first, second, third = ({"url": f"http://127.0.0.1:{port}"} for port in (1, 2, 3))
    words = [word for engine in (first, second) for word in ("--url", engine["url"])]
    parsed = arguments.parse([*words, "--engine", "vllm", "--url", third["url"]])
    assert parsed.flags["engines"] == [
        {"kind": "openai", **first},
        {"kind": "openai", **second},
        {"kind": "vllm", **third},
    ]


def test_no_flags_set_nothing() -> None:
    parsed = arguments.parse([])
    assert (parsed.config, parsed.flags, parsed.check) == (None, {}, False)


def test_check_config_takes_a_file() -> None:
    parsed = arguments.parse(["--check-config", "b.yaml"])
    assert (parsed.check, parsed.config) == (True, Path("b.yaml"))


@pytest.mark.parametrize("setting", ["engines.0.slots=1", "labels.x.y=1"])
def test_a_setting_inside_what_is_no_section_is_a_usage_error(
    setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parse(["--engine", "simulated", "--label", "x=1", "--set", setting])
    assert caught.value.code == 2
    assert "takes no keys here" in capsys.readouterr().err


def test_an_engine_option_without_an_engine_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parse(["--engine-option", "slots=2"])
    assert caught.value.code == 2
    assert "after an --engine" in capsys.readouterr().err
