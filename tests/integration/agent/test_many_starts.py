"""An agent starts its engines beside gRPC's threads, as often as it must."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.agent.many_starts import STARTS


@pytest.mark.slow
def test_no_start_of_a_process_hangs_or_breaks_beside_a_busy_stream() -> None:
    """Behaviour 78: 200 starts while the session is up; it lives on. Without `before_grpc` about
    every twentieth crashes before its exec.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.agent.many_starts"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    well, answers = map(int, done.stdout.split())
    assert well == STARTS, done.stderr
    assert answers > 10, "the stream stood still"
    assert done.stderr == ""
