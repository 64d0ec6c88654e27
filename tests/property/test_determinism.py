"""The same configuration, seed and events give the same commands, in any process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.property.core_history import digest
from tests.tidy.source_tree import ROOT

SEEDS = (1, 2, 3)


def test_commands_are_the_same_under_any_hash_seed() -> None:
    """Two processes with different `PYTHONHASHSEED`: sets and `hash()` would order differently."""
    here = [digest(seed) for seed in SEEDS]
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.property.core_history", *map(str, SEEDS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == here


def test_another_history_has_another_digest() -> None:
    """The digest sees what happens: it is not the same for everything."""
    assert digest(1, steps=60) != digest(2, steps=60)
