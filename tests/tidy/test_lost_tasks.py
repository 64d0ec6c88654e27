"""The check of tests/conftest.py is itself tried: lost tasks fail their tests, others pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tidy.source_tree import ROOT

LOSERS = """
import asyncio

async def fails():
    raise ValueError("nobody reads me")

async def waits():
    await asyncio.Event().wait()

async def test_unread_exception():
    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    del task

def test_destroyed_task():
    loop = asyncio.new_event_loop()
    task = loop.create_task(waits())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del task

async def test_awaited_task():
    await asyncio.gather(fails(), return_exceptions=True)
"""


def test_lost_tasks_fail_their_tests(tmp_path: Path) -> None:
    (tmp_path / "test_losers.py").write_text(LOSERS)
    plugin = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-q", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "3 passed, 2 errors" in done.stdout, done.stdout
    assert "ERROR at teardown of test_unread_exception" in done.stdout
    assert "ERROR at teardown of test_destroyed_task" in done.stdout
