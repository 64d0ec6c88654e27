"""The agent's driver: what happens in one moment is one turn of the core."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import Agent, EngineSpec
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.core.slots import MANY_ENDS
from node_agent.driver import Driver
from node_agent.engine_care import EngineCare
from node_agent.engines.interface import Result
from node_agent.engines.registry import build_engine
from node_agent.rpc.convert import batch_event
from node_agent.rpc.outbox import Outbox
from tests.unit.agent.agent_world import E, dispatch_id
from tests.unit.agent.test_agent_wire import packed

FINISHED = Result(finish_reason=types.FINISH_REASON_STOP)


class CountedAgent(Agent):
    """A real core that keeps what each of its turns was given."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__([spec])
        self.turns: list[list[type]] = []

    def step(self, now_ns: int, events: Sequence[ev.Event] = ()) -> list[cmd.Command]:
        self.turns.append([type(event) for event in events])
        return super().step(now_ns, events)


class Bench:
    """A driver in a session, with an engine that was given two items."""

    def __init__(self) -> None:
        engine = build_engine(
            engine_id=E, kind="simulated", options={"models": ["m"], "slots": 2, "latency": "60s"}
        )
        self.care = EngineCare(E, engine)
        self.core = CountedAgent(self.care.spec)
        self.outbox = Outbox(self.core.outputs)
        self.driver = Driver(self.core, {E: self.care}, self.outbox)

    async def open(self, *, stream: bool = False) -> None:
        await self.care.start(self.driver)
        self.driver.open_session()
        self.driver.welcome(ev.Welcomed(cluster_id="c", term=7, session_epoch=7 << 40 | 1))
        for counter in (1, 2):
            item = node.DispatchItem(dispatch_id=dispatch_id(counter), stream=stream)
            item.request.text.prompt = "hello"
            event = batch_event(packed(item))
            event.engine_id = E
            self.driver.received([event])
        self.outbox.next_message()
        self.core.turns.clear()

    async def close(self) -> None:
        self.driver.stop()
        await self.care.stop(0)


async def test_ends_of_one_moment_are_one_turn_and_one_message() -> None:
    bench = Bench()
    await bench.open()
    with bench.care.together():
        bench.care.finished(dispatch_id(1), FINISHED)
        bench.care.finished(dispatch_id(2), FINISHED)
        assert not bench.core.turns
    assert bench.core.turns == [[ev.EngineFinished, ev.EngineFinished]]
    message = bench.outbox.next_message()
    assert [result.dispatch_id for result in message.results] == [dispatch_id(1), dispatch_id(2)]
    await bench.close()


async def test_slots_of_few_are_freed_with_their_results_and_of_many_ahead() -> None:
    bench = Bench()
    await bench.open()
    bench.care.freed([dispatch_id(1), dispatch_id(2)])
    assert not bench.core.turns
    bench.care.freed([dispatch_id(n) for n in range(1, MANY_ENDS + 1)])
    assert bench.core.turns == [[ev.EngineFreed]]
    message = bench.outbox.next_message()
    assert [credit.total_inputs for credit in message.credits] == [4]
    assert not message.results
    await bench.close()


async def test_output_does_not_overtake_what_happened_before_it() -> None:
    bench = Bench()
    await bench.open(stream=True)
    with bench.care.together():
        bench.care.running(dispatch_id(1), 1)
        bench.care.delta(dispatch_id(1), 0, 0, "text", 1)
    states = [update.state for update in bench.outbox.next_message().updates]
    assert states == [node.ITEM_STATE_RUNNING, node.ITEM_STATE_FIRST_TOKEN]
    await bench.close()


async def test_what_fails_in_a_moment_does_not_keep_back_what_happened() -> None:
    bench = Bench()
    await bench.open()

    def fail() -> None:
        with bench.care.together():
            bench.care.finished(dispatch_id(1), FINISHED)
            raise RuntimeError("the engine's own")

    with pytest.raises(RuntimeError):
        fail()
    assert bench.core.turns == [[ev.EngineFinished]]
    bench.care.finished(dispatch_id(2), FINISHED)
    assert len(bench.core.turns) == 2
    await bench.close()
