"""On a terminal: tables instead of tab-separated values, colour unless NO_COLOR, a live screen."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from batchyard.v1 import admin_service_pb2 as admin
from tests.unit.cli.messages import busy_report
from tests.unit.cli.scripted import Scripted

YELLOW = b"\x1b[33m"
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"


class Terminal:
    """A command that runs with a pseudo-terminal of 80 by 24 as its standard output."""

    def __init__(self, address: str, *arguments: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "batchyard.cli", "--admin-address", address, *arguments],
            env={**os.environ, "TERM": "xterm-256color", **environment},
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.shown = b""

    def read_until(self, text: bytes, times: int = 1) -> None:
        while self.shown.count(text) < times:
            assert self._read(), self.shown

    def read_to_the_end(self) -> int:
        while self._read():
            pass
        return self.process.wait(10)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # how Linux tells that the other side has closed
            return False
        self.shown += data
        return bool(data)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_terminal_gets_a_coloured_table(scripted: Scripted, terminals: list[Terminal]) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    terminal = Terminal(scripted.address, "status", NO_COLOR="")
    terminals.append(terminal)
    assert terminal.read_to_the_end() == 0
    assert "▇▇▁▁ 2/4".encode() in terminal.shown
    assert YELLOW in terminal.shown


def test_no_color_is_obeyed(scripted: Scripted, terminals: list[Terminal]) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    terminal = Terminal(scripted.address, "status", NO_COLOR="1")
    terminals.append(terminal)
    assert terminal.read_to_the_end() == 0
    assert "▇▇▁▁ 2/4".encode() in terminal.shown
    assert YELLOW not in terminal.shown


def test_ctrl_c_leaves_the_live_screen_and_the_stream(
    scripted: Scripted, terminals: list[Terminal]
) -> None:
    live = admin.WatchReportResponse(report=busy_report())
    scripted.on("WatchReport", [live, Scripted.HANG])
    terminal = Terminal(scripted.address, "status", "--watch")
    terminals.append(terminal)
    terminal.read_until(b"pressure 1.50")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.read_to_the_end() == 130
    assert LEAVE_ALTERNATE_SCREEN in terminal.shown
    assert b"Traceback" not in terminal.shown
    scripted.expect_cancelled("WatchReport")


def test_terminal_that_cannot_redraw_gets_each_screen_below_the_last(
    scripted: Scripted, terminals: list[Terminal]
) -> None:
    live = admin.WatchReportResponse(report=busy_report())
    scripted.on("WatchReport", [live, live, Scripted.HANG])
    terminal = Terminal(scripted.address, "status", "--watch", TERM="dumb")
    terminals.append(terminal)
    terminal.read_until(b"pressure 1.50", times=2)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.read_to_the_end() == 130
    assert b"\x1b" not in terminal.shown


@pytest.mark.parametrize(
    ("redirection", "exit_code", "words"),
    [(">/dev/full", 1, "error: the output cannot be written"), (">&-", 0, ""), ("2>&-", 0, "")],
)
def test_output_that_goes_nowhere_is_no_traceback(
    scripted: Scripted, redirection: str, exit_code: int, words: str
) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    command = ["-m", "batchyard.cli", "status", "--admin-address", scripted.address]
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirection}', sys.executable, *command],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == exit_code, done.stderr
    assert done.stderr.strip().startswith(words)
    assert "Traceback" not in done.stderr


def test_output_without_utf_8_shows_what_it_can(scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    command = ["-m", "batchyard.cli", "status", "-o", "table"]
    done = subprocess.run(
        [sys.executable, *command, "--admin-address", scripted.address],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "???? 2/4" in done.stdout
