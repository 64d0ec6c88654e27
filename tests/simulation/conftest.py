"""A seed that is new in each run, and how to run it again."""

from __future__ import annotations

import os
import shlex

import pytest


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> int:
    """Said whether the test passes or not; FRESH_SEED has it be another."""
    given = os.environ.get("FRESH_SEED")
    seed = int(given) if given else int.from_bytes(os.urandom(4), "big")
    again = f"FRESH_SEED={seed} .venv/bin/pytest {shlex.quote(request.node.nodeid)}"
    with capsys.disabled():
        print(f"\nfresh seed, again: {again}")
    return seed
