"""What the agent does with engines that misbehave: none starts, one of two does, one raises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import app as agent_app
from node_agent import config_sources
from node_agent.app import App
from node_agent.core import Limits
from node_agent.engines.interface import EngineStartError, Item, Load, Result, Sink
from node_agent.hardware import FixedProbe
from tests.integration.agent.conftest import RECONNECT, RunningAgent
from tests.integration.agent.scripted_scheduler import ScriptedScheduler, cancel, text_item


class ScriptedEngine:
    """An engine that does what a test tells it."""

    def __init__(self, engine_id: str, *, fault: Exception | None = None) -> None:
        self.engine_id = engine_id
        self.fault = fault  # of start, or of submit when `late`
        self.late = False
        self.health = node.ENGINE_HEALTH_STARTING
        self.items: list[Item] = []
        self.cancelled: list[int] = []
        self.sink: Sink | None = None

    def describe(self) -> node.EngineDescriptor:
        return node.EngineDescriptor(
            engine_id=self.engine_id,
            kind="scripted",
            mode=node.ENGINE_MODE_CONTINUOUS,
            slots=2,
            models=[node.ModelDescriptor(model="m")],
        )

    def load(self) -> Load:
        return Load(health=self.health)

    async def start(self, sink: Sink) -> None:
        self.sink = sink
        if self.fault is not None and not self.late:
            raise self.fault
        self.health = node.ENGINE_HEALTH_SERVING

    async def stop(self, grace_s: float) -> None:
        self.health = node.ENGINE_HEALTH_DOWN

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:
        if self.fault is not None:
            raise self.fault
        self.items.extend(items)

    def cancel(self, dispatch_id: int, reason: Any) -> None:
        self.cancelled.append(dispatch_id)


def start(scheduler: ScriptedScheduler, *engines: ScriptedEngine) -> RunningAgent:
    flags = {
        "node_id": "n2",
        "scheduler": {"address": scheduler.address},
        "reconnect": RECONNECT,
        "engines": [{"id": engine.engine_id, "kind": "scripted"} for engine in engines],
    }
    loaded = config_sources.load(path=None, environ={"HOME": "/nowhere"}, flags=flags)
    lines: list[str] = []
    app = App(
        loaded,
        {engine.engine_id: engine for engine in engines},
        environ={},
        make_probe=FixedProbe,
        say=lines.append,
        limits=Limits(linger_ns=50_000_000, cancel_grace_ns=100_000_000),
    )
    return RunningAgent(app, lines)


async def test_an_agent_none_of_whose_engines_starts_exits_with_1(
    scheduler: ScriptedScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    agent = start(scheduler, ScriptedEngine("a", fault=EngineStartError("no such model file")))
    assert await agent.exit_code() == 1
    assert "no engine can serve" in caplog.text
    failed = [r for r in caplog.records if getattr(r, "event", "") == "engine_failed"]
    assert [r.__dict__["reason"] for r in failed] == ["no such model file"]


async def test_an_agent_that_leaves_tells_the_scheduler_why_in_its_engines_words(
    scheduler: ScriptedScheduler,
) -> None:
    """However soon its engines fail: it waits for a session to say it in, and half-closes then."""
    faults = {"a": "no such model file", "b": "out of memory"}
    engines = [ScriptedEngine(name, fault=EngineStartError(why)) for name, why in faults.items()]
    agent = start(scheduler, *engines)
    session = await scheduler.session()
    drained = await session.until(
        lambda: [m.drain for m in session.messages if m.HasField("drain")]
    )
    assert [(drain.reason, drain.terminate) for drain in drained] == [
        ("no engine can serve: a: no such model file; b: out of memory", True)
    ]
    loads = {load.engine_id: load for load in session.reports[-1].engines}
    assert {name: load.message for name, load in loads.items()} == faults
    assert await agent.exit_code() == 1
    await session.until(lambda: session.closed, "a half-close: it leaves in good order")


async def test_an_agent_without_engines_leaves_even_if_no_scheduler_can_be_told(
    scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_app, "TELL_S", 0.1)
    await scheduler.stop()
    agent = start(scheduler, ScriptedEngine("a", fault=EngineStartError("no such model file")))
    assert await agent.exit_code() == 1


async def test_an_engine_that_does_not_start_is_reported_down_and_the_other_works(
    scheduler: ScriptedScheduler,
) -> None:
    good = ScriptedEngine("good")
    agent = start(scheduler, ScriptedEngine("bad", fault=EngineStartError("out of memory")), good)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("good") == 2)
    assert session.credits["bad"] == 0
    loads = {load.engine_id: load for load in session.reports[-1].engines}
    assert loads["bad"].health == node.ENGINE_HEALTH_DOWN
    assert "out of memory" in loads["bad"].message
    session.dispatch(text_item(1), engine_id="bad", model="m")
    result = await session.until(lambda: session.result(1))
    assert result.refused
    assert result.error.reason == types.ERROR_REASON_ENGINE_UNAVAILABLE
    session.dispatch(text_item(2), engine_id="good", model="m")
    await session.until(lambda: session.reports and good.items)
    await agent.stop()


async def test_an_engine_that_raises_fails_its_items_and_not_the_agent(
    scheduler: ScriptedScheduler,
) -> None:
    engine = ScriptedEngine("a", fault=RuntimeError("a bug"))
    engine.late = True
    agent = start(scheduler, engine)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("a") == 2)
    session.dispatch(text_item(1), engine_id="a", model="m")
    result = await session.until(lambda: session.result(1))
    assert result.error.reason == types.ERROR_REASON_ENGINE_ERROR
    await session.until(lambda: session.credits["a"] == 3)
    engine.fault = None
    session.dispatch(text_item(2), engine_id="a", model="m")
    await session.until(lambda: session.reports and engine.items)
    await agent.stop()


async def test_an_engine_that_ignores_a_cancel_is_given_up_on(
    scheduler: ScriptedScheduler,
) -> None:
    """Behaviour 28: the result does not wait for ever, and the room comes back only once."""
    engine = ScriptedEngine("a")
    agent = start(scheduler, engine)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("a") == 2)
    session.dispatch(text_item(1), engine_id="a", model="m")
    await session.until(lambda: engine.items)
    session.send(cancels=[cancel(1)])
    result = await session.until(lambda: session.result(1))
    assert result.finish_reason == types.FINISH_REASON_CANCELLED
    assert engine.cancelled == [result.dispatch_id]
    assert session.credits["a"] == 2
    assert engine.sink is not None
    engine.sink.finished(result.dispatch_id, Result(finish_reason=types.FINISH_REASON_CANCELLED))
    await session.until(lambda: session.credits["a"] == 3)
    assert len(session.results) == 1
    await agent.stop()


async def test_an_engine_that_goes_down_takes_no_new_work_until_it_is_back(
    scheduler: ScriptedScheduler,
) -> None:
    engine = ScriptedEngine("a")
    agent = start(scheduler, engine)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("a") == 2)
    assert engine.sink is not None
    engine.health = node.ENGINE_HEALTH_STALLED
    engine.sink.changed()
    await session.until(lambda: session.reports[-1].engines[0].health == node.ENGINE_HEALTH_STALLED)
    session.dispatch(text_item(1), engine_id="a", model="m")
    assert (await session.until(lambda: session.result(1))).refused
    engine.health = node.ENGINE_HEALTH_SERVING
    engine.sink.changed()
    await session.until(lambda: session.credits["a"] == 3)
    await agent.stop()


async def test_agents_of_engines_at_one_port_get_ids_of_their_own(tmp_path: Path) -> None:
    """As of two containers with addresses of their own: nothing needs a name."""
    apps = []
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2"):
        flags = {"engines": [{"kind": "openai", "url": f"http://{host}:8000"}]}
        loaded = config_sources.load(path=None, environ={"HOME": "/nowhere"}, flags=flags)
        engines = {"openai": ScriptedEngine("openai")}
        apps.append(App(loaded, engines, environ={"XDG_RUNTIME_DIR": str(tmp_path)}))
    first, *others = (app.node_id for app in apps)
    assert first.endswith("-8000")
    assert others == [f"{first}-2", f"{first}-3"]
    for app in apps:
        app._own_id.release()
