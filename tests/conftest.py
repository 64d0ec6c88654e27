"""What holds for every test: no task is lost, none ends the run, property tests can be repeated."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# `ci` tries the same examples each time, so a red run can be run again; to look for new ones:
# HYPOTHESIS_PROFILE=explore make test-fast.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Behind a proxy for the way out, what is on this machine is reached without it: gRPC and urllib
# would ask it for loopback, too. Processes that tests start inherit this.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"

# What a shell starts in its background ignores Ctrl-C, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.engines.servers"]  # the contract runs on real engines, too
REAL_ENGINES = Path(__file__).parent / "engines"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-engines` drives real engines, each in an environment of its own."""
    parser.addoption("--engines", action="store_true", help="also drive real engines")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the real engines out, unless they are asked for."""
    if collection_path == REAL_ENGINES and not config.getoption("--engines"):
        return True
    return None


LOST = ("was destroyed", "never retrieved")


class _Complaints(logging.Handler):
    """Keeps what asyncio says of tasks that nobody awaited."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if any(words in text for words in LOST):
            self.texts.append(text)


@pytest.fixture(scope="session")
def asyncio_complaints() -> Iterator[list[str]]:
    """The list that the check below empties after each test."""
    handler = _Complaints()
    logging.getLogger("asyncio").addHandler(handler)
    yield handler.texts
    logging.getLogger("asyncio").removeHandler(handler)


@pytest.fixture(autouse=True)
def no_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """`batchyard scheduler` and its like replace their process. Called in a test without a process
    of its own, they would end the whole run, as a success.
    """

    def refuse(*command: object) -> None:
        pytest.fail(f"exec of {command} would replace the tests")

    monkeypatch.setattr(os, "execv", refuse)


@pytest.fixture(autouse=True)
def no_lost_tasks(asyncio_complaints: list[str]) -> Iterator[None]:
    """A task that is destroyed while pending, or whose exception nobody reads, fails its test."""
    asyncio_complaints.clear()
    yield
    gc.collect(1)  # a task in a cycle complains only when it is collected
    if asyncio_complaints:
        pytest.fail("asyncio lost a task:\n" + "\n".join(asyncio_complaints), pytrace=False)
