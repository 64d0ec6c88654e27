"""`batchyard dev`: ports, configuration files, and a process tree that leaves no orphan."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batchyard.cli.commands.dev import ready_text
from batchyard.cli.dev import engines
from batchyard.cli.dev.child import Child
from batchyard.cli.dev.ports import HOST, Ports, require_free
from batchyard.cli.dev.tree import AgentSpec, Tree
from batchyard.cli.failures import CliError
from tests.unit.cli.conftest import Cli
from tests.unit.cli.services import install


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of sys.path with both stand-ins; configurations are words."""
    install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def config(folder: Path, name: str, words: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(words)
    return path


class Lines:
    """The lines that a tree told, and a way to wait for one."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = asyncio.Event()

    def add(self, name: str, line: str) -> None:
        self.told.append(f"{name}: {line}")
        self._news.set()

    async def expect(self, line: str) -> None:
        async with asyncio.timeout(10):
            while line not in self.told:
                self._news.clear()
                await self._news.wait()


async def ended(handle: int) -> None:
    """Wait until the process of a pidfd, whosever child it is, has ended; close the pidfd."""
    end = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, end.set)
    try:
        async with asyncio.timeout(10):
            await end.wait()
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


class Trees:
    """Makes trees of stand-ins, and stops what a test leaves running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = Lines()
        self._made: list[Tree] = []

    def make(self, *, scheduler: str = "") -> Tree:
        tree = Tree(
            ports=Ports(18610),
            scheduler_config=config(self.folder, "scheduler", scheduler),
            on_line=self.lines.add,
        )
        self._made.append(tree)
        return tree

    async def start(self, *agents: str) -> Tree:
        tree = self.make()
        await tree.start_scheduler()
        for number, words in enumerate(agents):
            file = config(self.folder, f"agent{number}", words)
            await tree.start_agent(AgentSpec(f"n{number}", file))
        await tree.until_healthy(len(agents))
        return tree

    async def stop(self) -> None:
        for tree in self._made:
            tree.kill()
            await tree.stop(asyncio.Event())


@pytest.fixture
async def trees(services: Path) -> AsyncIterator[Trees]:
    made = Trees(services)
    yield made
    await made.stop()


async def test_tree_starts_scheduler_then_agents_and_stops_them_all(trees: Trees) -> None:
    tree = await trees.start("", "")
    arguments = tree.scheduler_ready["arguments"]
    assert arguments[arguments.index("--client-port") + 1] == "18611"
    assert arguments[arguments.index("--listen-host") + 1] == HOST
    children = [tree.scheduler, *tree.agents.values()]
    assert await tree.stop(asyncio.Event())
    assert [child.process.returncode for child in children if child] == [0, 0, 0]
    await trees.lines.expect("n1: a line of the log")


async def test_child_that_fails_to_start_is_an_error_with_its_last_words(trees: Trees) -> None:
    tree = trees.make(scheduler="fail")
    with pytest.raises(CliError, match="the scheduler exited with code 3") as failure:
        await tree.start_scheduler()
    assert "the disk is gone" in failure.value.text()
    await tree.stop(asyncio.Event())


async def test_agent_that_fails_to_start_is_an_error_with_its_last_words(trees: Trees) -> None:
    with pytest.raises(CliError, match="the n1 exited with code 3") as failure:
        await trees.start("", "fail")
    assert "the disk is gone" in failure.value.text()


async def test_agent_that_dies_is_told_and_the_rest_goes_on(trees: Trees) -> None:
    tree = await trees.start("", "")
    stop = asyncio.Event()
    watching = asyncio.create_task(tree.watch(stop))
    tree.agents["n0"].kill()
    await trees.lines.expect("dev: agent n0 was ended by SIGKILL; 1 left")
    assert not watching.done()
    stop.set()
    assert await watching is None
    assert await tree.stop(asyncio.Event())


async def test_end_of_the_scheduler_ends_the_watch(trees: Trees) -> None:
    tree = await trees.start("")
    assert tree.scheduler is not None
    tree.scheduler.kill()
    first = await asyncio.wait_for(tree.watch(asyncio.Event()), 10)
    assert first is tree.scheduler
    await tree.stop(asyncio.Event())


async def test_hurry_kills_what_does_not_stop(trees: Trees) -> None:
    tree = await trees.start("stubborn")
    hurry = asyncio.Event()
    stopping = asyncio.create_task(tree.stop(hurry))
    hurry.set()
    assert not await asyncio.wait_for(stopping, 5)
    assert tree.agents["n0"].process.returncode == -signal.SIGKILL


async def test_stop_kills_after_the_grace(trees: Trees) -> None:
    file = config(trees.folder, "x", "stubborn")
    child = await Child.start("x", "node_agent", ["-c", str(file)], on_line=trees.lines.add)
    assert await child.ready(10) is not None
    assert not await child.stop(0.05)
    assert child.process.returncode == -signal.SIGKILL


async def test_no_child_outlives_a_parent_that_is_killed(trees: Trees) -> None:
    """SIGKILL cannot be caught: the leash ends the children."""
    code = (
        "import asyncio, sys\n"
        "from batchyard.cli.dev.child import Child\n"
        "async def main():\n"
        "    child = await Child.start('x', 'node_agent',"
        " ['-c', sys.argv[1]], on_line=lambda *_: None)\n"
        "    await child.ready(10)\n"
        "    print(child.process.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(config(trees.folder, "x")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(await parent.stdout.readline()))
    parent.kill()
    await ended(child)
    await parent.wait()


def test_taken_port_is_named_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CliError, match=rf"\b{port} \(client\)") as failure:
            require_free(Ports(port - 1))
    assert f"--port-base {port + 99}" in failure.value.text()


def test_engine_is_simulated_and_says_why_where_the_model_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "WEIGHTS", "no-such-distribution")
    choice = engines.choose(None)
    assert choice.kind == "simulated"
    assert "no-such-distribution is not installed" in choice.reason
    with pytest.raises(CliError, match="not installed"):
        engines.choose("llamacpp")


def test_bounds_without_autoscale_are_a_usage_error(cli: Cli) -> None:
    assert cli("dev", "--max", "4").exit_code == 2
    assert cli("dev", "--autoscale", "--min", "3", "--max", "2").exit_code == 2


def test_what_to_type_next_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/batchyard", "dev"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "\n  .venv/bin/batchyard run " in ready_text(Ports(7610), ["n1"])
    program = tmp_path / "batchyard"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert "\n  batchyard run " in ready_text(Ports(7610), ["n1"])
