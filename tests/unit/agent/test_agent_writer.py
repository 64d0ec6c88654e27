"""When messages leave, what they carry together, and how long the agent waits between sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import Held, Item, ItemState, Outcome, OutcomeKind
from node_agent.core import commands as cmd
from node_agent.core.outputs import OutputBook
from node_agent.core.slots import MANY_ENDS
from node_agent.engines.interface import Result
from node_agent.rpc.link import Backoff, Link
from node_agent.rpc.outbox import Outbox
from node_agent.rpc.session import SessionEnd
from node_agent.rpc.settings import Timing, timing_of
from node_agent.rpc.writer import Writer

QUIET = Timing(heartbeat_s=60.0, report_s=60.0, coalesce_s=0.3)


class Bench:
    """An outbox, a writer, and a stream that can be held up."""

    def __init__(self, timing: Timing) -> None:
        self.book = OutputBook()
        self.outbox = Outbox(self.book)
        self.sent: list[node.ConnectRequest] = []
        self.open = asyncio.Event()
        self.open.set()
        self.changed = asyncio.Event()
        self.utilization = 0.0
        self.writer = Writer(self.outbox, self.write, timing, lambda: self.utilization)
        self.outbox.attach(self.writer.wake)
        self.task = asyncio.create_task(self.writer.run())

    async def write(self, data: bytes) -> None:
        await self.open.wait()
        self.sent.append(node.ConnectRequest.FromString(data))
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def speak(self, dispatch_id: int, text: str) -> None:
        if dispatch_id not in self.book:
            self.book.open(dispatch_id, {})
        self.book.append(dispatch_id, (0, 0), text, 1)
        self.outbox.add_output()

    def texts(self) -> list[list[str]]:
        return [list(m.deltas.texts) for m in self.sent if m.deltas.texts]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(QUIET)
    await made.until(lambda: made.sent)  # the heartbeat that comes first
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


HUNGRY = cmd.SendCredit("e", 64, None, hungry=True)
FED = cmd.SendCredit("e", 64, None)


def finished(dispatch_id: int, size: int = 0) -> Held:
    outputs = [inference.Output(text="x" * size)] if size else []
    result = Result(finish_reason=types.FINISH_REASON_STOP, outputs=outputs)
    return Held(
        item=Item(dispatch_id=dispatch_id, attempt=1),
        engine_id="e",
        received_ns=0,
        finished_ns=1,
        state=ItemState.FINISHED,
        outcome=Outcome(OutcomeKind.ENGINE, result=result),
    )


@pytest.mark.parametrize(
    ("results", "credit", "ahead"),
    [
        pytest.param(MANY_ENDS, HUNGRY, True, id="an engine waits and results are many"),
        pytest.param(MANY_ENDS - 1, HUNGRY, False, id="few results are written at once"),
        pytest.param(MANY_ENDS, FED, False, id="the engine has work"),
    ],
)
async def test_credit_that_an_engine_waits_for_leaves_ahead_of_many_results(
    bench: Bench, results: int, credit: cmd.SendCredit, ahead: bool
) -> None:
    bench.sent.clear()
    for number in range(1, results + 1):
        bench.outbox.add_result(finished(number))
    bench.outbox.add_credit(credit)
    await bench.until(lambda: bench.sent and bench.sent[-1].results)
    assert len(bench.sent) == 1 + ahead
    assert [c.total_inputs for m in bench.sent for c in m.credits] == [64]
    assert len(bench.sent[0].credits) == 1
    assert len(bench.sent[-1].results) == results


async def test_credit_that_an_engine_waits_for_leaves_ahead_of_a_report(bench: Bench) -> None:
    bench.sent.clear()
    bench.outbox.need_report()
    bench.outbox.add_credit(HUNGRY)
    await bench.until(lambda: len(bench.sent) == 2)
    assert [(len(m.credits), m.HasField("report")) for m in bench.sent] == [(1, False), (0, True)]


async def test_credit_does_not_overtake_the_description_that_it_rests_on(bench: Bench) -> None:
    """Slots changed with it: the scheduler must know them first."""
    bench.sent.clear()
    bench.outbox.need_descriptor()
    for number in range(1, MANY_ENDS + 1):
        bench.outbox.add_result(finished(number))
    bench.outbox.add_credit(HUNGRY)
    await bench.until(lambda: bench.sent)
    assert bench.sent[0].HasField("descriptor")
    assert bench.sent[0].credits
    assert bench.sent[0].results


async def test_what_gathers_during_a_write_leaves_in_the_next_message(bench: Bench) -> None:
    bench.open.clear()
    bench.speak(1, "a")
    await asyncio.sleep(0)  # the writer takes the first and waits for the stream
    await asyncio.sleep(0)
    for n in (1, 2, 3):
        bench.speak(n, "b")
    bench.outbox.add_result(finished(9))
    bench.open.set()
    await bench.until(lambda: len(bench.texts()) == 2)
    assert bench.texts() == [["a"], ["b", "b", "b"]]
    assert [r.dispatch_id for r in bench.sent[-1].results] == [9]


async def test_output_lingers_under_load_but_a_first_output_does_not(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    bench.speak(1, "first")
    await bench.until(lambda: bench.texts())
    begun = loop.time()
    bench.speak(1, "x")
    bench.speak(1, "y")
    await bench.until(lambda: len(bench.texts()) == 2)
    assert loop.time() - begun >= 0.25
    begun = loop.time()
    bench.speak(2, "another item's first")
    await bench.until(lambda: len(bench.texts()) == 3)
    assert loop.time() - begun < 0.25
    assert bench.texts()[1] == ["xy"]


async def test_a_result_leaves_only_after_all_output_of_its_item(bench: Bench) -> None:
    bench.open.clear()
    bench.speak(1, "z" * 200_000)
    bench.outbox.add_result(finished(1))
    bench.open.set()
    await bench.until(lambda: any(m.results for m in bench.sent))
    assert sum(len(t) for texts in bench.texts() for t in texts) == 200_000
    assert all(len(t) <= 65536 for texts in bench.texts() for t in texts)
    last = [bool(m.deltas.texts) for m in bench.sent if m.deltas.texts or m.results][-1]
    assert last  # in the same message as the last of it, which is handled before results


async def test_a_report_waits_until_all_results_have_left(bench: Bench) -> None:
    bench.open.clear()
    bench.speak(1, "z" * 200_000)
    bench.outbox.add_result(finished(1))
    bench.outbox.need_report()
    bench.open.set()
    await bench.until(lambda: any(m.HasField("report") for m in bench.sent))
    with_report = next(m for m in bench.sent if m.HasField("report"))
    assert with_report.results


async def test_a_result_that_no_message_can_carry_becomes_an_error(bench: Bench) -> None:
    bench.outbox.max_message_bytes = 256 * 1024
    bench.outbox.add_result(finished(1, size=300_000))
    bench.outbox.add_result(finished(2, size=100))
    await bench.until(lambda: sum(len(m.results) for m in bench.sent) == 2)
    results = {r.dispatch_id: r for m in bench.sent for r in m.results}
    assert results[1].error.reason == types.ERROR_REASON_REQUEST_TOO_LARGE, "no fault of the node"
    assert "300" in results[1].error.message
    assert not results[1].outputs
    assert results[2].outputs


async def test_a_change_of_load_is_reported_before_the_interval() -> None:
    bench = Bench(Timing(heartbeat_s=60.0, report_s=2.0, coalesce_s=0.0))
    try:
        await bench.until(lambda: bench.sent)
        bench.utilization = 0.5
        bench.speak(1, "x")
        await bench.until(lambda: any(m.HasField("report") for m in bench.sent))
    finally:
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)


def test_the_welcome_sets_the_intervals_within_reason() -> None:
    assert timing_of(node.Welcome()) == Timing()
    welcome = node.Welcome()
    welcome.heartbeat_interval.FromMilliseconds(0)
    welcome.coalesce.FromMilliseconds(0)
    timing = timing_of(welcome)
    assert timing.heartbeat_s > 0  # no scheduler can make an agent spin
    assert timing.coalesce_s == 0


# Between sessions.


def test_waits_are_random_below_a_bound_that_doubles_up_to_the_longest() -> None:
    """Behaviour 73: jitter, and a bound of a few seconds."""
    backoffs = [Backoff(first_s=0.2, longest_s=5.0, seed=n) for n in range(200)]
    rounds = [[b.next_s() for b in backoffs] for _ in range(10)]
    for number, waits in enumerate(rounds):
        bound = min(5.0, 0.2 * 2**number)
        assert max(waits) <= bound
        assert max(waits) > bound * 0.9
        assert min(waits) < bound * 0.1
    backoffs[0].reset()
    assert backoffs[0].next_s() <= 0.2


async def test_the_link_follows_only_redirects_that_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends = [
        SessionEnd(why="a", reconnect_after_s=0.0, redirect="evil:1", good=True),
        SessionEnd(why="b", reconnect_after_s=0.0, redirect="other:1", good=True),
        SessionEnd(why="c", reconnect=False),
    ]
    dialled: list[str] = []

    async def run_session(address: str) -> SessionEnd:
        dialled.append(address)
        return ends[len(dialled) - 1]

    link = Link(
        address="home:1",
        redirects=("other:1",),
        backoff=Backoff(first_s=0.001, longest_s=0.001, seed=1),
        run_session=run_session,
    )
    assert (await link.run()).why == "c"
    assert dialled == ["home:1", "home:1", "other:1"]
    assert "redirect is not in" in caplog.text


async def test_a_long_outage_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def run_session(_address: str) -> SessionEnd:
        nonlocal tries
        tries += 1
        return SessionEnd(why="refused", reason="UNIMPLEMENTED", reconnect=tries < 100)

    link = Link(
        address="home:1",
        redirects=(),
        backoff=Backoff(first_s=1e-6, longest_s=1e-6, seed=1),
        run_session=run_session,
    )
    await link.run()
    assert len(caplog.records) == 7  # 1, 2, 4, ... 64
    assert "node port" in caplog.text


async def test_news_of_an_item_whose_result_leaves_with_it_are_left_out(bench: Bench) -> None:
    bench.open.clear()
    bench.speak(1, "a")
    await asyncio.sleep(0)  # the writer takes it and waits for the stream
    await asyncio.sleep(0)
    for n in (7, 8):
        bench.outbox.add_update(cmd.SendUpdate(n, ItemState.RUNNING, 1))
    bench.outbox.add_result(finished(8))
    bench.open.set()
    await bench.until(lambda: bench.sent[-1].results)
    assert [u.dispatch_id for u in bench.sent[-1].updates] == [7]


def test_change_between_hello_and_welcome_is_told() -> None:
    """An engine that comes up meanwhile: the Hello did not have its models."""
    outbox = Outbox(OutputBook())
    outbox.need_descriptor()
    outbox.attach(lambda: None)
    assert outbox.next_message().HasField("descriptor")
    outbox.detach()
    outbox.attach(lambda: None)
    assert not outbox.next_message().HasField("descriptor")
