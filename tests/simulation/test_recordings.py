"""What a core decided under faults, it decides again from its recording, in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_service.recording.file import RecordingFile
from scheduler_service.recording.reader import read
from scheduler_service.recording.replay import replay
from simulator import scenario as scenarios


@pytest.mark.parametrize(("name", "seed"), [("storm", 7), ("storm", 21), ("two-speakers", 1)])
def test_a_storm_replays_to_the_same_decisions(name: str, seed: int, tmp_path: Path) -> None:
    plan = scenarios.load(name)
    plan.seed = seed
    path = tmp_path / "core.rec"
    file = RecordingFile(path, max_bytes=64 << 20)
    done = scenarios.run(plan, record=file)
    file.close()
    recording = read(path)
    replayed = replay(recording)
    assert replayed.difference is None
    assert recording.end == "closed"
    assert replayed.steps == done.world.steps
    assert len(replayed.requests) == done.metrics.submitted
    assert any(step.heard for step in recording.steps())
