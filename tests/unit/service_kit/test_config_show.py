"""What is in force, and where each value comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchyard.cli.root import batchyard
from node_agent import config_sources as agent_sources
from node_agent.engines.registry import build_engine
from scheduler_service import config_sources
from service_kit.config_show import show


def rows(lines: object) -> dict[str, tuple[str, str]]:
    return {
        key: (value, origin)
        for key, value, origin in (line.split("\t") for line in lines)  # type: ignore[attr-defined]
    }


def test_every_value_is_shown_as_it_is_written_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("shutdown_grace: 90s\nmodels: [m]\ntask_types: {chat: {max_wait: 2s}}\n")
    environ = {"BATCHYARD_SCHEDULER__QUEUE__MAX_BYTES": "64MiB"}
    loaded = config_sources.load(file, environ=environ, flags=["report.events=7"])
    shown = rows(show(loaded.config, loaded.origins))
    assert shown["shutdown_grace"] == ("1m30s", f"{file}:1")
    assert shown["queue.max_bytes"] == ("64MiB", "env BATCHYARD_SCHEDULER__QUEUE__MAX_BYTES")
    assert shown["report.events"] == ("7", "flag")
    assert shown["health.session_timeout"] == ("3s", "default")
    assert shown["models[0].name"][0] == '"m"'
    assert shown["task_types.chat.max_wait"] == ("2s", f"{file}:3")
    assert shown["task_types.chat.priority"] == ("6", "default")


def test_what_may_be_a_secret_is_masked() -> None:
    flags = {"engines": [{"kind": "simulated"}]}
    form = agent_sources.form(lambda *about: build_engine(
        engine_id=about[0], kind=about[1], options=about[2]
    ))  # fmt: skip
    loaded = form.load(None, environ={"HOME": "/nowhere"}, flags=flags)
    engine = loaded.config.engines[0].model_copy(update={"api_key": "hunter2"})
    config = loaded.config.model_copy(update={"engines": (engine,)})
    shown = rows(show(config, loaded.origins))
    assert shown["engines[0].api_key"][0] == '"***"'


@pytest.mark.slow
def test_the_command_shows_what_is_not_a_default(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("shutdown_grace: 90s\n")
    done = CliRunner().invoke(batchyard, ["config", "show", str(file), "--origin", "-o", "json"])
    assert done.exit_code == 0, done.output
    assert '"shutdown_grace"' in done.output
    assert f"{file}:1" in done.output
    assert "health.session_timeout" not in done.output
