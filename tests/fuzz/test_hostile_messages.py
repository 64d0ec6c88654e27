"""Hostile messages, in any order, on the streams of clients and agents, against the real ports.

FUZZ_MESSAGES says how many are sent at least (CI: 1,000 on each kind of stream).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchyard.v1 import node_service_pb2
from node_agent.engines.simulated_text import check_text, is_seamless
from scheduler_service.core import invariants
from scheduler_service.rpc import node, scheduler
from tests.fuzz import valid_messages
from tests.fuzz.mutations import RECIPES, Pantry, Recipe, cook
from tests.integration.scheduler.harness import World, prompt, running_world, seconds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PER_EXAMPLE = 40
MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "1000"))
END_S = 0.05  # for the end of a hostile stream that is half-closed
TAKEN_S = 0.001  # from a message to the end of the stream that it is the end of
STREAMS = {
    "agents": (f"/{node.SERVICE}/Connect", valid_messages.of_agents),
    "clients": (f"/{scheduler.SERVICE}/Multiplex", valid_messages.of_clients),
}
BATCHES = st.lists(RECIPES, min_size=PER_EXAMPLE, max_size=PER_EXAMPLE)


class Attacked:
    """A scheduler, an honest agent, an honest client, and someone who means no good."""

    def __init__(self, world: World, path: str, valid: Sequence[Message]) -> None:
        self.world = world
        self.path = path
        self.valid = valid
        self.first = valid[0].SerializeToString()
        self.sent = 0
        self.streams = 0
        self.heard = 0  # streams that were answered
        self.answered = 0
        services = {node.SERVICE: node.SERVICE, scheduler.SERVICE: scheduler.SERVICE}
        port = world.servers.ports[services[path.split("/")[1]]]
        self.channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )

    async def send(self, batch: Sequence[Recipe]) -> None:
        """All of them, on as many streams as it takes: each may end the one it comes on."""
        waiting = deque(batch)
        while waiting:
            before = len(waiting)
            call = self.channel.stream_stream(self.path)()
            self.streams += 1
            reader = asyncio.create_task(self._read(call))
            try:
                if self.streams % 4:
                    await self._write(call, self.first, reader)
                while waiting and not reader.done():
                    pantry = Pantry(self.valid, valid_messages.LIVE, self.live())
                    await self._write(call, cook(waiting[0], pantry), reader)
                    waiting.popleft()
                await call.done_writing()
                await asyncio.wait({reader}, timeout=END_S)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # it ended just now
            finally:
                call.cancel()
                await reader
            assert len(waiting) < before, f"the port takes no message: {call}"

    async def _write(self, call: Any, data: bytes, reader: asyncio.Task[None]) -> None:
        """Also gives the port the time to end the stream for it, before the next one is sent."""
        await call.write(data)
        self.sent += 1
        await asyncio.wait({reader}, timeout=TAKEN_S)

    async def _read(self, call: Any) -> None:
        """Returns when the stream ends, or is about to: after a goodbye nothing is listened to."""
        first = True
        try:
            while (data := await call.read()) is not grpc.aio.EOF:
                self.heard += first
                first = False
                if self.path.endswith("/Connect") and _says_goodbye(data):
                    return
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass

    def report(self) -> str:
        """The counts, in one line."""
        return (
            f"fuzz: {self.sent} messages on {self.streams} streams, {self.heard} of them"
            f" answered; {self.answered} honest calls answered"
        )

    def live(self) -> list[int]:
        """Attempts that are live now: the attacker's own, and those of honest nodes."""
        return [i for request in self.world.state.requests.values() for i in request.live]

    async def accomplice(self) -> None:
        """Asks for the attacker's own model, so that it holds something; any end will do."""
        await self.world.ask("generate_stream", prompt(model="rogue", timeout=seconds(0.2)))

    async def honest(self) -> None:
        """The stream that was open all the time, and a call of its own, get what is right."""
        for way in ("multiplex_stream", "generate"):
            answer = await self.world.ask(way, prompt("[[tokens=9]]"))
            assert answer.error is None, answer.error
            assert is_seamless(answer.text), answer.text
            assert check_text(answer.text)[-1][2] == 8
            self.answered += 1
        invariants.check(self.world.state)


def _says_goodbye(data: bytes) -> bool:
    return node_service_pb2.ConnectResponse.FromString(data).HasField("goodbye")


@pytest.mark.parametrize("side", STREAMS)
def test_hostile_messages_disturb_nobody(side: str) -> None:
    """Thousands of them: the scheduler lives, its books are right, honest sessions go on, and
    nothing is logged as an error.
    """
    path, make_valid = STREAMS[side]
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        world = runner.run(stack.enter_async_context(running_world()))
        runner.run(world.add_agent(slots=4, latency_per_token="4ms"))
        attacked = Attacked(world, path, make_valid())
        epoch = world.state.nodes["n1"].epoch
        runner.run(attacked.honest())
        stream = world.streams[0]

        @settings(
            max_examples=-(-MESSAGES // PER_EXAMPLE),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(BATCHES)
        def attack(batch: list[Recipe]) -> None:
            async def both() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(attacked.accomplice())
                    sending = group.create_task(attacked.send(batch))
                    while not sending.done():
                        await attacked.honest()

            runner.run(both())

        try:
            attack()
            runner.run(attacked.honest())
            print(attacked.report())
            assert attacked.sent >= MESSAGES
            assert attacked.heard > attacked.streams / 2, "few got beyond the first message"
            assert world.streams == [stream], "the honest stream was ended"
            assert world.state.nodes["n1"].epoch == epoch, "the honest agent had to come again"
        finally:
            runner.run(attacked.channel.close())
            runner.run(stack.aclose())
