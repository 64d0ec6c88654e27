"""The core alone: no gRPC, no asyncio, events made by hand. Prints microseconds as one JSON line.

python -m benchmarks.core_costs --requests 20000
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable

from scheduler_service.core import CoreSettings, Scheduler, events
from scheduler_service.core.commands import DispatchBatch, FinishRequest
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.relay import Output, Relay
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.state import State
from scheduler_service.core.timers import TimerWheel
from scheduler_service.core.types import (
    MILLISECOND,
    SECOND,
    Attempt,
    Batch,
    Engine,
    EngineSpec,
    ModelSpec,
    Node,
    NodeSpec,
    Request,
)
from scheduler_service.policies import build

MODEL = "m"
PER_STEP = 64  # requests that come in one step, as they do in one packed message
SLOTS = 256  # over all nodes
SHORT_QUEUE, LONG_QUEUE = 1_000, 100_000
WAITING = (100, 1_000, 10_000, 100_000)  # of the figure
NODES = (1, 8, 32, 128, 1_000)


class Bed:
    """A core and agents that finish, in the next step, all that they are sent.

    With as many slots as requests come in a step, what waits stays as much as it is.
    """

    def __init__(self, nodes: int, slots: int = SLOTS) -> None:
        queue = QueueSettings(max_requests=2 * LONG_QUEUE)
        self.scheduler = Scheduler(CoreSettings(queue=queue), build())
        self.finished = 0
        self.spent_ns = 0  # inside the core
        self._now = 1_000 * SECOND
        self._rid = 0
        self._slots = slots // nodes
        self._granted: dict[str, int] = {}
        self._held: list[DispatchBatch] = []
        joins: list[events.Event] = []
        for number in range(nodes):
            node_id = f"n{number:02}"
            engine = EngineSpec("e", EngineMode.CONTINUOUS, self._slots, models=(ModelSpec(MODEL),))
            joins.append(events.NodeJoined(node_id, "boot", number + 1, NodeSpec((engine,))))
            self._granted[node_id] = self._slots
        self._step(joins)
        for number, node_id in enumerate(self._granted):
            self._step([self._credit(node_id, number + 1)])

    def requests(self, count: int) -> list[Request]:
        """New ones, over all priorities, each with a deadline."""
        first, self._rid = self._rid + 1, self._rid + count
        return [
            Request(
                rid, f"r{rid}", MODEL, rid % 10 + 1, self._now, deadline=self._now + 60 * SECOND
            )
            for rid in range(first, first + count)
        ]

    def queue(self, count: int) -> None:
        """Let so many wait, at one instant: nobody's silence or service time is to be noticed."""
        while self.waiting < count:
            self._step([events.RequestsSubmitted(self.requests(PER_STEP))], after=0)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self.scheduler.state.pools[MODEL].queue)

    def turn(self) -> None:
        """All that runs is finished, and as many come."""
        held, self._held = self._held, []
        happened: list[events.Event] = []
        for batch in held:
            ends = [events.ItemEnd(a.dispatch_id, output_tokens=1) for a in batch.batch.attempts]
            happened.append(events.ItemsFinished(batch.node_id, batch.epoch, ends))
            self._granted[batch.node_id] += len(ends)
            happened.append(self._credit(batch.node_id, batch.epoch))
        happened.append(events.RequestsSubmitted(self.requests(PER_STEP)))
        self._step(happened)

    def _credit(self, node_id: str, epoch: int) -> events.CreditsGranted:
        return events.CreditsGranted(node_id, epoch, [("e", self._granted[node_id], None)])

    def _step(self, happened: list[events.Event], after: int = 2 * MILLISECOND) -> None:
        self._now += after
        began = time.process_time_ns()
        commands = self.scheduler.step(self._now, happened)
        self.scheduler.take_records()
        self.spent_ns += time.process_time_ns() - began
        for command in commands:
            if type(command) is DispatchBatch:
                self._held.append(command)
            elif type(command) is FinishRequest:
                self.finished += 1

    def cost_us(self, requests: int) -> float:
        """Microseconds in the core for each request, after a warm-up."""
        for _ in range(requests // PER_STEP // 5 + 4):
            self.turn()
        finished, spent_ns = self.finished, self.spent_ns
        while self.finished - finished < requests:
            self.turn()
        return (self.spent_ns - spent_ns) / (self.finished - finished) / 1e3


def _each_us(count: int, action: Callable[[int], object]) -> float:
    """Microseconds of one call, the loop's own included."""
    began = time.process_time_ns()
    for number in range(count):
        action(number)
    return (time.process_time_ns() - began) / count / 1e3


def _timer_us(count: int) -> float:
    wheel = TimerWheel()

    def action(number: int) -> None:
        wheel.set(number, number * MILLISECOND)
        wheel.cancel(number)

    return _each_us(count, action)


def _queue_us(count: int) -> float:
    queue = PoolQueue(8)
    waiting = [Request(rid, "r", MODEL, rid % 10 + 1) for rid in range(LONG_QUEUE + count)]
    for request in waiting[:LONG_QUEUE]:
        queue.push(request)

    def action(number: int) -> None:
        queue.push(waiting[LONG_QUEUE + number])
        queue.remove(waiting[number * 7919 % LONG_QUEUE])

    return _each_us(count, action)


def _relay_us(count: int) -> float:
    relay = Relay()
    relay.open(1, Output(1, None), None, sole=True)
    return _each_us(count, lambda number: relay.accept(1, 0, 0, number * 8, 8, 1))


def _record_us(count: int) -> float:
    state = State(CoreSettings(), build())
    request = Request(1, "r", MODEL)
    return _each_us(count, lambda _: state.record("submit", request, pool=MODEL))


def _objects_us(count: int) -> float:
    spec = EngineSpec("e", EngineMode.CONTINUOUS, SLOTS)
    node = Node("n", "boot", 1, NodeSpec((spec,)), 0, 0)
    engine = Engine(node, spec, {})
    batch = Batch("b", engine, MODEL, atomic=False, close_reason="credit", created_at=0)

    def action(number: int) -> Attempt:
        request = Request(number, "r", MODEL, 5, number, deadline=number + SECOND)
        return Attempt(
            dispatch_id=number, number=1, request=request, engine=engine, model=MODEL,
            batch=batch, inputs=1, started_at=number,
        )  # fmt: skip

    return _each_us(count, action)


def _with_queue(length: int, requests: int) -> float:
    bed = Bed(1, slots=PER_STEP)
    bed.queue(length)
    cost = bed.cost_us(requests)
    if not length <= bed.waiting <= length + 2 * PER_STEP:
        raise RuntimeError(f"{bed.waiting} wait where {length} should: this measures nothing")
    return cost


def _with_nodes(nodes: int, requests: int) -> float:
    return Bed(nodes, slots=max(SLOTS, nodes)).cost_us(requests)


def curves(requests: int) -> dict[str, float]:
    """Microseconds of a request by what waits and by nodes."""
    costs = {}
    for waiting in WAITING:
        costs[f"waiting {waiting}"] = _with_queue(waiting, requests)
        gc.collect()
    for nodes in NODES:
        costs[f"nodes {nodes}"] = _with_nodes(nodes, requests)
        gc.collect()
    return costs


def measure(requests: int, waiting: int) -> dict[str, float]:
    """All costs, in microseconds; each by itself in a world of its own."""
    work: dict[str, Callable[[], float]] = {
        "request": lambda: Bed(1).cost_us(requests),
        "request_32_nodes": lambda: Bed(32).cost_us(requests),
        "request_short": lambda: _with_queue(SHORT_QUEUE, requests),
        "request_long": lambda: _with_queue(waiting, requests),
        "timer": lambda: _timer_us(requests),
        "queue": lambda: _queue_us(requests),
        "relay": lambda: _relay_us(requests),
        "record": lambda: _record_us(requests),
        "objects": lambda: _objects_us(requests),
    }
    costs = {}
    for name, act in work.items():
        costs[name] = act()
        gc.collect()
    return costs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core_costs", allow_abbrev=False)
    parser.add_argument("--requests", type=int, default=20_000, help="for each cost")
    parser.add_argument("--waiting", type=int, default=LONG_QUEUE, help="in the long queue")
    parser.add_argument("--curves", action="store_true", help="only by queue length and nodes")
    parser.add_argument("--exit-with-stdin", action="store_true", help="it ends by itself")
    gc.set_threshold(50_000, 20, 50)  # as the service does
    options = parser.parse_args()
    act = curves(options.requests) if options.curves else measure(options.requests, options.waiting)
    print(json.dumps(act), flush=True)


if __name__ == "__main__":
    main()
