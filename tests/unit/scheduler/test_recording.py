"""A recording holds all that decides, nothing that callers wrote, and never more than its bound."""

from __future__ import annotations

import dataclasses
import gzip
import json
import stat
import typing
import zlib
from pathlib import Path
from typing import Any

import pytest

from scheduler_service.core import CoreSettings
from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import EngineMode, Reason, RequestClass, ResumeMode
from scheduler_service.core.settings import (
    AutoscaleSettings,
    FailoverSettings,
    HealthSettings,
    Patience,
    QueueSettings,
)
from scheduler_service.core.types import EngineSpec, ModelSpec, NodeSpec, Request, Traits
from scheduler_service.policies import REGISTRY, UnknownPolicyError, build
from scheduler_service.policies.ordering import Strict
from scheduler_service.policies.pickers import Soonest
from scheduler_service.recording import codec, policies
from scheduler_service.recording.file import RecordingFile
from scheduler_service.recording.reader import CUT, RecordingError, read
from scheduler_service.recording.replay import replay
from scheduler_service.recording.scheduler import RecordingScheduler
from tests.builders import World, engine, model, seconds, settings

SECRET = "the launch code is 0000"


def request(rid: int, **fields: Any) -> Request:
    return Request(rid, f"r{rid}", "m", **fields)


class RecordedWorld(World):
    """A world whose core is recorded."""

    def __init__(self, path: Path, *, max_bytes: int = 1 << 20) -> None:
        super().__init__(settings())
        self.file = RecordingFile(path, max_bytes=max_bytes)
        self.scheduler = RecordingScheduler(settings(), build(), self.file)


def plain(path: Path) -> bytes:
    return zlib.decompressobj(31).decompress(path.read_bytes())


def test_every_event_comes_back_as_it_was() -> None:
    spec = NodeSpec(
        (
            EngineSpec(
                "e0",
                EngineMode.STATIC,
                4,
                models=(ModelSpec("m", token_times=((1, 5), (4, 9)), task_types=("chat",)),),
            ),
        ),
        labels={"zone": "a"},
    )
    whole = request(
        7,
        priority=9,
        tenant="gold",
        degrade=("s", "t"),
        resume_mode=ResumeMode.RESTART,
        request_class=RequestClass.JOB,
        traits=Traits(input_kind=3, length=12),
    )
    events: list[ev.Event] = [
        ev.RequestsSubmitted([whole]),
        ev.RequestsCancelled([7], Reason.CANCELLED_BY_CLIENT),
        ev.BodyReturned(7, whole),
        ev.NodeJoined("n0", "boot", 5, spec, [ev.RunningItem(3, finished=True)]),
        ev.NodeDescribed("n0", 5, spec),
        ev.NodesHeard([("n0", 5)]),
        ev.CreditsGranted("n0", 5, [("e0", 4, None), ("e1", 2, 1000)]),
        ev.ReportReceived(
            "n0", 5, 3, {"e0": [1, 2]}, {"e0": "hot"}, {"e0": ["m"]}, {"e0": (None, 0.5)}
        ),
        ev.ItemsRunning("n0", 5, [1]),
        ev.OutputsBegun([1]),
        ev.ItemsFinished("n0", 5, [ev.ItemEnd(1, Reason.ENGINE_OOM, output_tokens=3)]),
        ev.SessionBroken("n0", 5, goodbye=True),
        ev.NodeCordoned("n0", True),
        ev.DrainRequested("n0", 10, terminate=False, by_agent=True),
        ev.ScaleFailed("m", ""),
        ev.PoolPaused("m", True),
        ev.AutoscaleFrozen("", 5),
        ev.PoliciesChanged(
            build({"order": "fifo"}, orderings={"m": Strict()}),
            QueueSettings(weights={"gold": 3.0}),
            HealthSettings(),
            FailoverSettings(patience_by_model={"m": Patience(idle=5)}),
            AutoscaleSettings(max_nodes=7),
        ),
        ev.SchedulerDraining(),
    ]
    assert {type(event) for event in events} == set(typing.get_args(ev.Event))
    for event in events:
        back = codec.decode_event(codec.encode_event(event))
        assert dataclasses.asdict(back) == dataclasses.asdict(event)


def test_settings_and_every_registered_policy_come_back() -> None:
    given = CoreSettings(
        term=9, known_models=frozenset({"b", "a"}), queue=QueueSettings(weights={"gold": 3.0})
    )
    assert codec.decode(CoreSettings, codec.encode(given)) == given
    for question, known in REGISTRY.items():
        for name in known if question != "filters" else ():
            back = policies.decode(policies.encode(build({question: name})))
            assert back == build({question: name})
    own = build(orderings={"m": REGISTRY["order"]["fifo"]()})
    assert policies.decode(policies.encode(own)) == own


def test_every_policy_in_force_is_written_down() -> None:
    """`filters` are always the same; `orderings` are written by pool."""
    names = {field.name for field in dataclasses.fields(PolicySet) if field.init}
    assert names == {*policies.QUESTIONS, "filters", "orderings"}


def test_a_policy_without_a_name_cannot_be_recorded(tmp_path: Path) -> None:
    class Mine(Soonest):
        pass

    chosen = dataclasses.replace(build(), picker=Mine())
    file = RecordingFile(tmp_path / "r", max_bytes=1 << 20)
    with pytest.raises(UnknownPolicyError, match="pick"):
        RecordingScheduler(CoreSettings(), chosen, file)
    file.close()


def test_what_callers_wrote_and_models_said_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    agent = world.agent("a", engine(slots=2))
    told = Traits(params=SECRET.encode(), length=23)
    rid = world.submit(traits=told, context=SECRET).rid
    held = world.scheduler.state.requests[rid].live
    end = ev.ItemEnd(
        next(iter(held)), Reason.ENGINE_ERROR, SECRET, payload=SECRET, metadata={"x": SECRET}
    )
    world.step(ev.ItemsFinished(agent.node_id, agent.epoch, [end]))
    world.step(ev.RequestsCancelled([rid], message=SECRET))
    world.file.close()
    assert b'"RequestsSubmitted"' in plain(path)
    assert SECRET.encode() not in plain(path)
    assert SECRET.encode().hex().encode() not in plain(path)
    assert replay(read(path)).difference is None


def test_the_file_is_private_and_keeps_one_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    for number in range(3):
        file = RecordingFile(path, max_bytes=1 << 20)
        file.write({"number": number}, 0)
        file.close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b'"number":2' in plain(path)
    assert b'"number":1' in plain(tmp_path / "core.rec.1")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_file_ends_the_recording_and_not_the_work(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path, max_bytes=8 << 10)
    agent = world.agent("a", engine(slots=2))
    for _ in range(1_000):
        world.submit(priority=world.now % 10 + 1, request_id=str(world.now) * 4)
        world.advance(0.5)
        agent.finish_ids(list(agent.held))
    assert world.file.over
    assert path.stat().st_size <= 8 << 10
    assert world.submit() is not None  # goes on
    recording = read(path)
    assert replay(recording).difference is None
    assert recording.end == "full"


def test_a_killed_process_leaves_what_it_flushed(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    agent = world.agent("a", engine(slots=2))
    for _ in range(20):
        world.submit()
        world.advance(1.1)
        agent.finish_ids(list(agent.held))
    recording = read(path)  # nobody has closed it
    done = replay(recording)
    world.file.close()
    assert done.difference is None
    assert done.steps > 20
    assert recording.end == CUT


def test_a_core_that_decides_otherwise_is_told_at_its_first_difference(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    agent = world.agent("a", engine(slots=1))
    world.submit(priority=1)
    world.submit(priority=1)
    world.submit(priority=9)
    world.advance(1)
    agent.finish_ids(list(agent.held))
    world.file.close()
    found = replay(read(path), policies=build({"order": "fifo"})).difference
    assert found is not None
    assert any(line.startswith("dispatch") and "#3.1" in line for line in found.recorded)
    assert any(line.startswith("dispatch") and "#2.1" in line for line in found.replayed)
    assert found.after == seconds(1)


def test_policies_that_changed_meanwhile_change_in_a_replay_too(tmp_path: Path) -> None:
    """With others given, it is those that decide from the first step to the last."""
    path = tmp_path / "core.rec"
    w = RecordedWorld(path)
    w.agent("n0", engine())
    running = w.submit()
    low, high = w.submit(priority=1), w.submit(priority=9)
    now = w.scheduler.state.settings
    fifo = build({"order": "fifo"})
    w.step(ev.PoliciesChanged(fifo, now.queue, now.health, now.failover, now.autoscale))
    w.agents["n0"].finish(running)
    assert low.live
    assert not high.live
    w.file.close()
    recording = read(path)
    assert replay(recording).difference is None
    other = replay(recording, policies=build({"order": "strict"})).difference
    assert other is not None


def test_a_fault_of_the_core_and_the_fresh_one_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    world.agent("a", engine(slots=1))
    world.submit()
    with pytest.raises(AssertionError, match="time went back"):
        world.scheduler.step(world.now - 1, [])
    world.scheduler = world.scheduler.successor()
    agent = world.agent("a", engine(slots=1))
    agent.finish(world.submit())
    world.file.close()
    recording = read(path)
    assert [s.fault for s in recording.steps() if s.fault] == ["AssertionError"]
    assert [s.anew for s in recording.steps()].count(True) == 1
    done = replay(recording)
    assert done.difference is None
    assert len(done.requests) == 2


def test_first_words_are_part_of_a_recording(tmp_path: Path) -> None:
    """Two attempts are live after a broken stream; the one that speaks wins, also in the replay."""
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    first = world.agent("a", engine(slots=1, models=[model()]))
    second = world.agent("b", engine(slots=1, models=[model()]))
    request = world.submit(stream=True)
    holder, other = (first, second) if first.held else (second, first)
    holder.lose_stream()
    world.advance(0.5)
    holder.join()
    assert other.held
    other.speak(request, 5)
    world.advance(0.1)
    other.finish(request)
    world.advance(1)
    world.file.close()
    recording = read(path)
    assert any(step.heard for step in recording.steps())
    assert replay(recording).difference is None


@pytest.mark.parametrize(
    ("head", "line", "why"),
    [
        ({"policies": None}, "", "policies cannot be made"),
        ({"orderings": 5}, "", "policies cannot be made"),
        ({"settings": 5}, "", "settings cannot be read"),
        ({}, "[" * 100_000, "no JSON"),
        ({}, "[1.5,[],[],[]]", "whole nanoseconds"),
        ({}, "[1,2,3]", "step 2"),
    ],
)
def test_a_recording_that_was_tampered_with_is_refused_with_a_reason(
    tmp_path: Path, head: dict[str, Any], line: str, why: str
) -> None:
    path = tmp_path / "core.rec"
    world = RecordedWorld(path)
    world.advance(1)
    world.file.close()
    first, step, *_ = plain(path).decode().splitlines()
    document = {**json.loads(first), **head}
    lines = [json.dumps(document), step, line] if line else [json.dumps(document), step]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    with pytest.raises(RecordingError, match=why):
        replay(read(path))


def test_other_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no recording")
    with pytest.raises(RecordingError, match="not gzipped"):
        read(other)
    with pytest.raises(RecordingError, match="cannot be read"):
        read(tmp_path / "absent")
    file = RecordingFile(tmp_path / "new", max_bytes=1 << 20)
    file.write({"format": "batchyard-recording", "version": 99}, 0)
    file.close()
    with pytest.raises(RecordingError, match="version 99"):
        read(tmp_path / "new")
