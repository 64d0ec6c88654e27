"""The agent's core under any order of events, beside a naive ledger of the scheduler's side."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node_agent.core import Limits
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.core.state import Phase
from tests.unit.agent.agent_world import E, World, batch, dispatch_id, item

SOON = st.integers(0, 3_000_000_000)


class AgentMachine(RuleBasedStateMachine):
    """Rules are what a scheduler, an engine, a network and an operator do."""

    @initialize(slots=st.integers(1, 4), ahead=st.integers(0, 2), static=st.booleans())
    def begin(self, slots: int, ahead: int, static: bool) -> None:
        limits = Limits(unacked_results=6)
        self.world = World(slots=slots, look_ahead=ahead, static=static, limits=limits)
        self.term = 7
        self.counter = 0
        self.wanted: set[int] = set()  # dispatched, not abandoned, no result acknowledged
        self.in_engine: dict[int, int] = {}  # by the engine's own books: id -> inputs
        self.stopped: set[int] = set()
        self.results: list[int] = []  # of this session, in order
        self.acked = 0
        self.sent_inputs = 0
        self.total = 0
        self.welcomed = False
        self.world.serve()

    def _do(self, *events: ev.Event) -> None:
        for command in self.world.step(*events):
            self._see(command)

    def _see(self, command: cmd.Command) -> None:
        if isinstance(command, cmd.RunItems):
            for run in command.items:
                assert run.dispatch_id not in self.in_engine
                self.in_engine[run.dispatch_id] = run.inputs
        elif isinstance(command, cmd.CancelItem):
            assert command.dispatch_id in self.in_engine
            assert command.dispatch_id not in self.stopped, "stopped twice"
            self.stopped.add(command.dispatch_id)
        elif isinstance(command, cmd.SendResult):
            done = command.held.item.dispatch_id
            assert done in self.wanted, "a result that nobody waits for"
            assert done not in self.results, "two results in one session"
            self.results.append(done)
        elif isinstance(command, cmd.SendCredit):
            assert command.total_inputs >= self.total, "a total fell"
            self.total = command.total_inputs

    @property
    def open(self) -> bool:
        return self.world.agent.phase is Phase.OPEN

    @precondition(lambda self: not self.open)
    @rule(data=st.data(), lower=st.booleans())
    def connect(self, data: st.DataObject, lower: bool) -> None:
        hello = self.world.step(ev.SessionOpened())[0]
        assert isinstance(hello, cmd.SendHello)
        assert {h.held.item.dispatch_id for h in hello.items} == self.wanted
        if lower and self.welcomed:
            self._do(ev.Welcomed(cluster_id="c", term=self.term - 1, session_epoch=1))
            assert not self.open, "an older scheduler got in"
            return
        self.welcomed = True
        gone = data.draw(st.sets(st.sampled_from(sorted(self.wanted)))) if self.wanted else set()
        self.wanted -= gone
        self._new_session(sorted(gone))

    def _new_session(self, abandoned: list[int]) -> None:
        self.results, self.acked, self.sent_inputs, self.total = [], 0, 0, 0
        welcome = ev.Welcomed(cluster_id="c", term=self.term, session_epoch=2, abandoned=abandoned)
        self._do(welcome)

    @precondition(lambda self: self.open)
    @rule()
    def disconnect(self) -> None:
        self._do(ev.SessionClosed())

    @precondition(lambda self: self.open)
    @rule(
        charges=st.lists(st.integers(1, 2), min_size=1, max_size=3),
        over=st.booleans(),
        atomic=st.booleans(),
        remaining=st.none() | SOON,
        stream=st.booleans(),
    )
    def dispatch(
        self, charges: list[int], over: bool, atomic: bool, remaining: int | None, stream: bool
    ) -> None:
        items = []
        for inputs in charges:
            inputs = min(inputs, self.world.spec.slots)
            if not over and self.sent_inputs + inputs > self.total:
                break
            self.counter += 1
            self.sent_inputs += inputs
            items.append(item(self.counter, inputs=inputs, remaining_ns=remaining, stream=stream))
        self.wanted |= {i.dispatch_id for i in items}
        before = len(self.results)
        self._do(batch(*items, atomic=atomic))
        if not over and self.world.agent.drain is None:
            busy = [
                held.item.dispatch_id
                for i in self.results[before:]
                if (held := self.world.agent.items[i]).outcome is not None
                and held.outcome.reason == "ENGINE_BUSY"
            ]
            assert not busy, "refused within its credit"

    @precondition(lambda self: self.in_engine)
    @rule(data=st.data(), complete=st.booleans())
    def engine_finishes(self, data: st.DataObject, complete: bool) -> None:
        done = data.draw(st.sampled_from(sorted(self.in_engine)))
        del self.in_engine[done]
        self.stopped.discard(done)
        self._do(ev.EngineFinished(engine_id=E, dispatch_id=done, complete=complete))

    @precondition(lambda self: self.in_engine)
    @rule(data=st.data())
    def engine_frees_slots_ahead(self, data: st.DataObject) -> None:
        freed = data.draw(st.sets(st.sampled_from(sorted(self.in_engine)), min_size=1))
        self.in_engine.update(dict.fromkeys(freed, 0))
        self._do(ev.EngineFreed(E, sorted(freed)))

    @precondition(lambda self: self.in_engine)
    @rule(data=st.data(), text=st.text(max_size=3))
    def engine_speaks(self, data: st.DataObject, text: str) -> None:
        speaker = data.draw(st.sampled_from(sorted(self.in_engine)))
        self._do(ev.EngineRunning(speaker, 1))
        self.world.agent.output(self.world.now, speaker, (0, 0), text, 1)

    @precondition(lambda self: self.counter)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        which = data.draw(st.integers(1, self.counter))
        self._do(ev.CancelsReceived([dispatch_id(which)], "PREEMPTED"))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.acked = data.draw(st.integers(self.acked, len(self.results)))
        self.wanted -= set(self.results[: self.acked])
        self._do(ev.ResultsAcked(self.acked))

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        for command in self.world.advance(seconds):
            self._see(command)

    @rule(slots=st.integers(0, 5))
    def limit_slots(self, slots: int) -> None:
        grown = slots == 0 or slots >= self.world.agent.engines[E].slots
        if grown:  # a shrink makes over-sends of what was granted; a unit test has that
            self._do(ev.SlotsLimited(E, slots))

    @rule(grace=st.none() | SOON)
    def model_is_closed(self, grace: int | None) -> None:
        self._do(ev.ModelClosed(E, "", grace))

    @rule()
    def model_is_opened(self) -> None:
        self._do(ev.ModelReopened(E, ""))

    @rule(grace=st.none() | SOON)
    def scheduler_drains(self, grace: int | None) -> None:
        self._do(ev.DrainRequested(grace_ns=grace, own=False, terminate=False))

    @invariant()
    def nothing_is_lost_and_nothing_overflows(self) -> None:
        if not hasattr(self, "world"):
            return
        agent = self.world.agent
        assert set(agent.items) == self.wanted
        assert sum(self.in_engine.values()) <= agent.engines[E].slots
        ledger = agent.ledger()
        listed = set(ledger.running[E]) | set(ledger.waiting[E])
        assert listed == {i for i, held in agent.items.items() if held.outcome is None}

    def teardown(self) -> None:
        """Heal everything: each item then ends once, and all room comes back."""
        if not hasattr(self, "world"):
            return
        if not self.open:
            self.world.step(ev.SessionOpened())
            self._new_session([])
        while self.in_engine:
            done = next(iter(self.in_engine))
            del self.in_engine[done]
            self._do(ev.EngineFinished(engine_id=E, dispatch_id=done, complete=True))
        assert set(self.results) >= self.wanted
        self._do(ev.ResultsAcked(len(self.results)))
        agent = self.world.agent
        slots = agent.engines[E]
        assert not agent.items
        assert slots.held_inputs == slots.inside_inputs == 0
        assert not slots.freed
        assert self.total - self.sent_inputs == slots.capacity


AgentMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_agent_core_machine = AgentMachine.TestCase
