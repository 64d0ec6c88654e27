"""Real commands and agents under the actuators: what ends when, and what is said of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_service.actuators.command import CommandActuator
from scheduler_service.actuators.process import ProcessActuator
from scheduler_service.core.commands import RequestScale

LOOPS = ["asyncio", "uvloop"]


def _wanted(desired: int = 1) -> RequestScale:
    return RequestScale("m", desired, 0, 0, "a test", [])


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - files and processes tell nobody
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class _Shell:
    """An actuator whose command is a shell script."""

    def __init__(self, script: str, *, time_limit_s: float = 20.0) -> None:
        self.failures: list[str] = []
        self.actuator = CommandActuator(
            ["/bin/sh", "-c", script],
            on_failed=lambda _, message: self.failures.append(message),
            time_limit_s=time_limit_s,
        )


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a coroutine on either loop: they differ in when they call a process ended."""
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        return lambda main: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main)
    return asyncio.run


def test_command_has_ended_though_it_left_an_agent_in_the_background(
    run: Callable[..., None], tmp_path: Path
) -> None:
    """It holds standard error open; the next decision does not wait for it, and nothing failed."""
    left, asked = tmp_path / "left", tmp_path / "asked"

    async def main() -> None:
        shell = _Shell(f"cat >> {asked}; sleep 60 & echo $! >> {left}")
        shell.actuator.scale(_wanted(1))
        shell.actuator.scale(_wanted(2))
        await _until(lambda: not shell.actuator._running)
        assert asked.read_text().count('"pool": "m"') == 2
        assert shell.failures == []

    try:
        run(main())
    finally:
        pids = [int(pid) for pid in left.read_text().split()]
        for pid in pids:
            assert _runs(pid), "what a command left behind is the user's"
            os.kill(pid, 9)


def test_what_a_command_left_behind_can_go_on_talking(
    run: Callable[..., None], tmp_path: Path
) -> None:
    """A write to a pipe that nobody reads would kill it."""
    ended, alive = tmp_path / "ended", tmp_path / "alive"

    async def main() -> None:
        wait = f"while [ ! -e {ended} ]; do sleep 0.02; done"
        shell = _Shell(f"({wait}; head -c 200000 /dev/zero >&2 && touch {alive}) &")
        shell.actuator.scale(_wanted())
        await _until(lambda: not shell.actuator._running)
        ended.touch()
        await _until(alive.exists)
        await _until(lambda: not shell.actuator._listening)
        await shell.actuator.close()

    run(main())


def test_command_that_takes_too_long_is_stopped_with_all_that_it_started(
    run: Callable[..., None], tmp_path: Path
) -> None:
    started = tmp_path / "started"

    async def main() -> None:
        shell = _Shell(f"sleep 60 & echo $! > {started}; wait", time_limit_s=0.5)
        shell.actuator.scale(_wanted())
        await _until(lambda: bool(shell.failures))
        assert shell.failures == ["/bin/sh took more than 0.5 s"]
        await _until(lambda: not _runs(int(started.read_text())))

    run(main())


def test_closing_ends_a_command_and_what_it_started(
    run: Callable[..., None], tmp_path: Path
) -> None:
    started = tmp_path / "started"

    async def main() -> None:
        shell = _Shell(f"sleep 60 & echo $! > {started}; wait")
        shell.actuator.scale(_wanted())
        await _until(lambda: started.exists() and bool(started.read_text()))
        await shell.actuator.close()
        await _until(lambda: not _runs(int(started.read_text())))
        assert shell.failures == []

    run(main())


def test_last_words_of_a_command_that_talks_without_end_are_told(run: Callable[..., None]) -> None:
    async def main() -> None:
        shell = _Shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo no quota >&2; exit 3")
        shell.actuator.scale(_wanted())
        await _until(lambda: bool(shell.failures))
        (told,) = shell.failures
        assert told.startswith("/bin/sh ended with code 3: xxx")
        assert told.endswith("no quota")
        assert len(told) < 600

    run(main())


@pytest.mark.parametrize("argv", [["/nowhere/at/all"], ["/tmp"]])
def test_command_that_cannot_be_run_is_told(run: Callable[..., None], argv: list[str]) -> None:
    async def main() -> None:
        failures: list[str] = []
        actuator = CommandActuator(argv, on_failed=lambda _, words: failures.append(words))
        actuator.scale(_wanted())
        await _until(lambda: bool(failures))
        assert failures[0].startswith(f"{argv[0]} cannot be run: ")

    run(main())


AGENT_THAT_TALKS = """
import sys
sys.stderr.write("x" * 300_000 + "\\n")
sys.stderr.write("the end\\n")
sys.exit(int(sys.argv[1]))
"""


class _Agents:
    """An actuator whose agents are a script."""

    def __init__(
        self, script: Path, monkeypatch: pytest.MonkeyPatch, *, joined: bool = False
    ) -> None:
        package = script.parent / "node_agent"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(script.read_text())
        monkeypatch.chdir(script.parent)  # `python -m` looks there first
        self.failures: list[str] = []
        self.actuator = ProcessActuator(
            ["5"],
            on_failed=lambda _, message: self.failures.append(message),
            joined=lambda _: joined,
        )

    def gone(self) -> bool:
        return self.actuator._number > 0 and not self.actuator._children


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT_THAT_TALKS)
    return path


async def test_agent_whose_log_has_an_endless_line_is_reaped(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = _Agents(script, monkeypatch)
    agents.actuator.scale(_wanted())
    await _until(lambda: bool(agents.failures))
    assert agents.failures[0].endswith("ended with code 5: the end")
    assert agents.gone()


async def test_agent_that_had_joined_is_no_failed_start(
    script: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A SIGKILL of a node that serves is told by the node's own events, not as a failed scaling."""
    agents = _Agents(script, monkeypatch, joined=True)
    agents.actuator.scale(_wanted())
    await _until(lambda: "ended with code 5" in caplog.text)
    assert agents.failures == []
