"""Commands that are whole processes: `dev`, `scheduler`, `agent`, `config check`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchyard.cli.dev import engines, files
from tests.ports import HOST, free_base
from tests.unit.cli.services import install

BATCHYARD = [sys.executable, "-m", "batchyard.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    install(tmp_path)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def batchyard(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BATCHYARD, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.fixture
def port_base() -> int:
    return free_base()


class Dev:
    """A running `batchyard dev -o json` and the pids of its children."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready
        self.children = [os.pidfd_open(pid) for pid in ready["pids"].values()]

    @classmethod
    async def start(cls, environment: dict[str, str], base: int, *arguments: str) -> Dev:
        process = await asyncio.create_subprocess_exec(
            *BATCHYARD,
            "dev",
            "-o",
            "json",
            "--engine",
            "simulated",
            "--port-base",
            str(base),
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        if not line:
            _, errors = await process.communicate()
            raise AssertionError(errors.decode())
        return cls(process, json.loads(line))

    async def end(self) -> tuple[int, str]:
        """Wait until it and all its children have ended."""
        _, errors = await asyncio.wait_for(self.process.communicate(), 20)
        for child in self.children:
            await asyncio.wait_for(_ended(child), 20)
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


async def _ended(handle: int) -> None:
    end = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, end.set)
    await end.wait()
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)


async def test_dev_tells_its_addresses_and_ctrl_c_stops_all_of_it(
    environment: dict[str, str], port_base: int
) -> None:
    dev = await Dev.start(environment, port_base, "--agents", "3")
    assert dev.ready["client"] == f"{HOST}:{port_base + 1}"
    assert dev.ready["nodes"] == ["dev-1", "dev-2", "dev-3"]
    assert dev.ready["engine"] == "simulated"
    assert len(dev.children) == 4
    dev.process.send_signal(signal.SIGINT)
    code, errors = await dev.end()
    assert code == 130
    assert "killed" not in errors
    assert "Traceback" not in errors


async def test_dev_that_is_terminated_ends_well(
    environment: dict[str, str], port_base: int
) -> None:
    dev = await Dev.start(environment, port_base)
    dev.process.terminate()
    code, _ = await dev.end()
    assert code == 0


async def test_dev_that_is_killed_leaves_no_process_behind(
    environment: dict[str, str], port_base: int
) -> None:
    dev = await Dev.start(environment, port_base)
    dev.process.kill()
    code, _ = await dev.end()
    assert code == -signal.SIGKILL


async def test_dev_ends_when_its_scheduler_ends(
    environment: dict[str, str], port_base: int
) -> None:
    dev = await Dev.start(environment, port_base)
    os.kill(dev.ready["pids"]["scheduler"], signal.SIGKILL)
    code, errors = await dev.end()
    assert code == 1
    assert "the scheduler was ended by SIGKILL" in errors
    assert "a line of the log" in errors


async def test_autoscaled_dev_leaves_the_agents_to_the_scheduler(
    environment: dict[str, str], port_base: int
) -> None:
    dev = await Dev.start(environment, port_base, "--autoscale", "--min", "2", "--max", "3")
    assert dev.ready["nodes"] == ["auto-1", "auto-2"]
    assert list(dev.ready["pids"]) == ["scheduler"]
    dev.process.send_signal(signal.SIGINT)
    _, errors = await dev.end()
    assert "2 now, at most 3" in errors


def test_autoscale_section_names_bounds_and_the_agents_file(tmp_path: Path) -> None:
    import yaml

    plan = files.write(tmp_path, engines.choose("simulated"), agents=2, autoscale=(1, 4))
    assert plan.agents == []
    config = yaml.safe_load(plan.scheduler.read_text())
    assert config["models"] == [engines.SIMULATED_MODEL]
    section = config["autoscale"]
    assert section["enabled"] is True
    assert section["actuator"] == "process"
    assert (section["min"], section["max"]) == (1, 4)
    assert Path(section["process"]["agent_config"]).exists()


@pytest.mark.parametrize(("command", "file"), [("scheduler", "s.yaml"), ("agent", "a.yaml")])
def test_service_command_becomes_the_service_with_its_exit_code(
    environment: dict[str, str], tmp_path: Path, command: str, file: str
) -> None:
    (tmp_path / file).write_text("fail")
    done = batchyard(environment, command, "-c", str(tmp_path / file), "--anything", "else")
    assert done.returncode == 3
    assert done.stderr == "cannot start: the disk is gone\n"


def test_service_keeps_the_process_id_so_that_signals_reach_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text("")
    process = subprocess.Popen(
        [*BATCHYARD, "scheduler", "-c", str(tmp_path / "s.yaml"), "--log-level", "info"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["arguments"][-2:] == ["--log-level", "info"]
    process.terminate()
    assert process.wait(10) == 0
    process.stdout.close()


def test_module_of_the_users_folder_does_not_become_part_of_a_service(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text("fail")
    user = tmp_path / "user"
    user.mkdir()
    (user / "json.py").write_text("raise SystemExit(77)")
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "batchyard"),
            "scheduler",
            "-c",
            str(tmp_path / "s.yaml"),
        ],
        env=environment,
        cwd=user,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3


def test_config_check_shows_every_problem_and_tells_by_the_exit_code(
    environment: dict[str, str], tmp_path: Path
) -> None:
    good, bad = tmp_path / "scheduler.yaml", tmp_path / "agent-lab.yaml"
    good.write_text("")
    bad.write_text("engines: is missing\nroel: is not a key here")
    assert batchyard(environment, "config", "check", str(good)).returncode == 0
    done = batchyard(environment, "config", "check", str(bad))
    assert done.returncode == 1
    assert "roel: is not a key here" in done.stderr
    document = json.loads(batchyard(environment, "config", "check", str(bad), "-o", "json").stdout)
    assert document["valid"] is False
    assert document["role"] == "agent"
    assert document["messages"] == ["engines: is missing", "roel: is not a key here"]


def test_config_check_asks_whose_file_it_is_where_the_name_does_not_tell(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "production.yaml"
    file.write_text("")
    done = batchyard(environment, "config", "check", str(file))
    assert done.returncode == 2
    assert "--role" in done.stderr
    done = batchyard(environment, "config", "check", str(file), "--role", "agent")
    assert done.returncode == 0
