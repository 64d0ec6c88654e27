"""`batchyard dev` with the real scheduler and agents: all that a newcomer types."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ports import HOST, free_base

BATCHYARD = [sys.executable, "-m", "batchyard.cli"]
START_S = 60.0

pytestmark = pytest.mark.slow


class Dev:
    """A running `batchyard dev`, and command lines against it."""

    def __init__(self, *arguments: str) -> None:
        self.base = free_base()
        self.environment = {
            **os.environ,
            "BATCHYARD_ADDRESS": f"{HOST}:{self.base + 1}",
            "BATCHYARD_ADMIN_ADDRESS": f"{HOST}:{self.base + 3}",
        }
        self.process = subprocess.Popen(
            [*BATCHYARD, "dev", "-o", "json", "--port-base", str(self.base), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        self._begun: list[subprocess.Popen[bytes]] = []
        self.ready = self._read_ready()

    def _read_ready(self) -> Any:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.process.terminate()
            pytest.fail(f"dev did not start:\n{self.process.communicate(timeout=30)[1].decode()}")
        return json.loads(line)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*BATCHYARD, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", code=code))

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a streamed run and wait for its first output."""
        running = subprocess.Popen(
            [*BATCHYARD, "run", "hello", "--stream", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._begun.append(running)
        assert running.stdout is not None
        assert running.stdout.read(1), running.communicate()[1]
        return running

    def stop(self) -> tuple[int, str]:
        """Ctrl-C; the exit code and what it said."""
        for running in self._begun:
            running.kill()
            running.communicate()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=40)
        return self.process.returncode, errors.decode()


@pytest.fixture(scope="module")
def dev() -> Iterator[Dev]:
    running = Dev("--engine", "simulated")
    yield running
    running.stop()


def test_prompt_is_answered_and_streamed(dev: Dev) -> None:
    assert dev("run", "hello").strip()
    lines = dev("run", "hello", "--stream", "-o", "json", "--priority", "8").splitlines()
    events = [json.loads(line) for line in lines]
    text = "".join(event["text"] for event in events[:-1])
    assert text == events[-1]["result"]["text"] != ""


def test_answer_says_where_it_ran(dev: Dev) -> None:
    document = dev.json("run", "hello", "--max-tokens", "4", "--request-id", "cli-1")
    assert document["node_id"] in dev.ready["nodes"]
    assert document["request_id"] == "cli-1"
    assert document["usage"]["output_tokens"] == 4
    assert len(document["attempts"]) == 1


def test_report_counts_what_was_run(dev: Dev) -> None:
    dev("run", "hello", "--max-tokens", "2")
    report = dev.json("report")
    assert report["totals"]["succeeded"] >= 1
    assert {node["node_id"] for node in report["nodes"]} >= {"dev-1", "dev-2"}
    assert all(node["state"] == "healthy" for node in report["nodes"])
    assert {"submit", "batch_finished"} <= {log["event"] for log in report["logs"]}
    assert report["diagnosis"]
    assert dev.json("report", "--lang", "zh")["report_name"] != report["report_name"]


def test_status_models_queues_and_requests_are_shown(dev: Dev) -> None:
    dev("run", "hello", "--max-tokens", "2", "--request-id", "cli-2")
    assert dev.json("status")["scheduler_version"]
    assert "10 = most urgent" in dev("status", "-o", "table")
    assert [row["model"] for row in dev.json("models", "list")["models"]] == [dev.ready["model"]]
    assert dev.json("queues", "list")["queues"] == []
    assert "cli-2" in dev("requests", "list", "--state", "finished", "-o", "name").split()
    assert dev.json("requests", "show", "cli-2")["state"] == "finished"
    assert dev("requests", "show", "no-such-request", code=1) == ""


def test_unknown_model_is_refused_with_exit_code_1(dev: Dev) -> None:
    dev("run", "hello", "-m", "no-such-model", code=1)


def test_cordon_and_uncordon_change_the_state(dev: Dev) -> None:
    assert dev.json("nodes", "cordon", "dev-2", "--reason", "trying")["state"] == "cordoned"
    document = dev.json("run", "hello", "--max-tokens", "2")
    assert document["node_id"] == "dev-1"
    assert dev.json("nodes", "uncordon", "dev-2")["availability"] == "active"
    dev("nodes", "cordon", "no-such-node", code=1)


def test_waiting_request_is_cancelled_by_id(dev: Dev) -> None:
    running = dev.begin("--max-tokens", "2000", "--request-id", "cli-3")
    assert dev.json("requests", "cancel", "cli-3")["requests"][0]["cancelled"]
    _, errors = running.communicate(timeout=10)
    assert running.returncode == 1
    assert b"CANCELLED" in errors
    dev("requests", "cancel", "cli-3", code=1)


def test_drain_of_a_busy_node_loses_nothing_and_proves_it(dev: Dev) -> None:
    """Drains dev-2 in the middle of a stream that it runs; comes last, for it stays drained."""
    dev("nodes", "cordon", "dev-1")
    running = dev.begin("--max-tokens", "100", "--request-id", "cli-4")
    proof = dev.json("nodes", "drain", "dev-2", "--grace", "30s")
    assert proof["state"] == "drained"
    assert proof["lost"] == 0
    assert proof["finished_request_ids"] == ["cli-4"]
    running.communicate(timeout=10)
    assert running.returncode == 0
    assert "node_drained" in dev("events", "list", "--type", "node_drained")


def test_ctrl_c_drains_the_agents_and_ends_every_process() -> None:
    dev = Dev("--engine", "simulated", "--agents", "3")
    children = [os.pidfd_open(pid) for pid in dev.ready["pids"].values()]
    assert len(children) == 4
    code, errors = dev.stop()
    assert code == 130
    assert "killed" not in errors
    for child in children:
        readable, _, _ = select.select([child], [], [], 0)
        assert readable, "a process outlived dev"
        os.close(child)


def test_dev_that_is_killed_takes_scheduler_and_agents_with_it() -> None:
    dev = Dev("--engine", "simulated")
    children = [os.pidfd_open(pid) for pid in dev.ready["pids"].values()]
    dev.process.kill()
    dev.process.communicate()
    for child in children:
        readable, _, _ = select.select([child], [], [], 20)
        assert readable, "a process outlived dev"
        os.close(child)


def test_autoscaled_dev_starts_its_agent_by_the_scheduler_and_stops_it_too() -> None:
    dev = Dev("--engine", "simulated", "--autoscale", "--min", "1", "--max", "2")
    assert len(dev.ready["nodes"]) == 1
    assert dev("run", "hello", "--max-tokens", "2").strip()
    code, errors = dev.stop()
    assert code == 130
    assert "killed" not in errors
