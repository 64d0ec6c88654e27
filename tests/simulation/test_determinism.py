"""The same seed gives the same events, byte for byte, in any process and with any hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.fleet import parse
from simulator.simulation import Plan, simulate
from simulator.workload.assignment import Assignment, between
from simulator.workload.traces import load

ROOT = Path(__file__).resolve().parents[2]


def policy_run() -> str:
    """A stretch of a trace on two kinds of nodes: digest and summary."""
    arrivals = between(Assignment(seed=3)(load("azure-code")), 0, 300)
    plan = Plan(name="run", fleet=parse("1xH100-70B@16,2xslots-70B"))
    summary = simulate(plan, arrivals).summary
    return f"{summary.log_digest} {summary.log_lines} {summary.as_dict()}"


CODE = "from tests.simulation.test_determinism import policy_run; print(policy_run())"


def in_process(hash_seed: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    "arguments",
    [("-m", "simulator", "storm", "--seed", "11"), ("-c", CODE)],
    ids=["faults", "policies"],
)
def test_processes_with_other_hash_seeds_see_the_same_events(arguments: tuple[str, ...]) -> None:
    first, second = in_process("0", *arguments), in_process("4242", *arguments)
    assert first == second
    assert len(first) > 60


def test_the_log_s_text_is_what_its_digest_covers(tmp_path: Path) -> None:
    logs = []
    for number in range(2):
        path = tmp_path / f"{number}.log"
        in_process("random", "-m", "simulator", "two-speakers", "--seed", "3", "--log", str(path))
        logs.append(path.read_bytes())
    assert logs[0] == logs[1]
    assert logs[0].count(b"\n") > 500


def test_another_seed_gives_other_events() -> None:
    one = in_process("0", "-m", "simulator", "two-speakers", "--seed", "1")
    two = in_process("0", "-m", "simulator", "two-speakers", "--seed", "2")
    assert one.split("digest")[1] != two.split("digest")[1]
