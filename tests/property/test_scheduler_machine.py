"""The whole core under any history: requests, nodes and time as Hypothesis likes them.

Each step checks every invariant of the core (`check_every=1`) and the accounts of the world around
it (`tests/builders.py`): one result per request and never two, nothing sent after its end or its
deadline, no engine given more than its credit and room, every streamed text legal. At the end all
is healed, and every request that was accepted must come to its end.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scheduler_service.core import commands as cmd
from scheduler_service.core import drains
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import (
    NodeAvailability,
    Reason,
    RequestClass,
    RequestState,
    ResumeMode,
)
from scheduler_service.core.settings import AutoscaleSettings, FailoverSettings, Hedge
from scheduler_service.core.types import BatchRules, NodeSpec, Traits
from scheduler_service.policies import build
from tests.builders import Agent, Held, World, engine, model, queue, seconds, static
from tests.builders import settings as core_settings

FLOOR = 3
REFINED = {
    "admission": "guarded",
    "batch": "feasible",
    "score": "estimate",
    "pick": "hot_cold",
    "degrade": "pressed",
    "autoscale": "law",
}
KEEN = Hedge(share=1.0, least_delay=seconds(0.01), fewest=1)
INDEX = st.integers(0, 20)
NAMES = st.sampled_from(["a", "b", "c"])
ENDS = [
    {},
    {"reason": Reason.ENGINE_ERROR},
    {"reason": Reason.ENGINE_OOM},
    {"reason": Reason.ENGINE_STALLED},
    {"reason": Reason.INVALID_ARGUMENT},
    {"reason": Reason.ENGINE_BUSY, "refused": True},
    {"reason": Reason.NODE_DRAINING, "refused": True},
    {"reason": Reason.DEADLINE_EXCEEDED},
]
REQUESTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["m", "m", "m", "s", "s", "unknown"]),
        "priority": st.integers(1, 10),
        "request_class": st.sampled_from(RequestClass),
        "stream": st.sampled_from([True, True, False]),
        "inputs": st.sampled_from([1, 1, 2, 9]),
        "max_attempts": st.sampled_from([3, 3, 2, 1]),
        "resume_mode": st.sampled_from(ResumeMode),
        "continuable": st.booleans(),
        "degrade": st.sampled_from([(), ("s",), ("m", "s")]),
        "task_type": st.sampled_from(["other", "chat"]),
        "prompt_tokens": st.sampled_from([0, 0, 100, 5_000, 9_000]),
        "size_bytes": st.integers(0, 50),
        "traits": st.sampled_from([None, Traits(params=b"hot"), Traits(params=b"cold", length=9)]),
    },
    optional={
        "timeout": st.sampled_from([30.0, 8.0, 1.0, 0.004, -1.0]),
        "max_wait": st.sampled_from([seconds(9), seconds(4), seconds(1), 0]),
        "degrade_after": st.sampled_from([seconds(1), 0]),
    },
)


def spec_of(name: str) -> NodeSpec:
    """Three unlike nodes: continuous, static, and a backup with look-ahead."""
    if name == "a":
        able = [model("m", context_length=8_000), model("s")]
        return NodeSpec((engine("e0", slots=2, models=able), engine("e1", models=["s"])))
    if name == "b":
        rules = BatchRules(equal=("params",))
        plain = [model("m", resumable=False, context_length=4_000)]
        return NodeSpec((static("e0", slots=3, models=plain, rules=rules),), managed=True)
    backup = engine("e0", slots=1, look_ahead=1, models=["m"])
    return NodeSpec((backup,), role="backup", task_types=("chat", "other"))


class SchedulerMachine(RuleBasedStateMachine):
    """Rules are what may happen; the world's accounts and the core's invariants say if it went
    well.
    """

    @initialize(
        nodes=st.sampled_from(["abc", "abc", "ab", "ac", "bc", "a", ""]),
        policies=st.sampled_from([{}, {}, REFINED]),
        hedge=st.sampled_from([None, None, KEEN]),
    )
    def begin(self, nodes: str, policies: dict[str, str], hedge: Hedge | None) -> None:
        core = core_settings(
            queue=queue(floor_every=FLOOR, max_requests=8, max_bytes=300, no_node_grace=seconds(5)),
            autoscale=AutoscaleSettings(enabled=True, min_nodes=0),
            failover=FailoverSettings(hedge=hedge),
            known_models=frozenset({"m", "s"}),
        )
        self.world = World(core, build(policies))
        self.choices: dict[str, list[str]] = {}
        self.old: list[tuple[str, int, int]] = []  # (node, epoch, dispatch id) of dead sessions
        self.seen = 0  # commands looked at
        for name in nodes:
            self.join(name)

    # What callers do.

    @rule(fields=REQUESTS, count=st.sampled_from([1, 1, 2, 5]))
    def submit(self, fields: dict[str, Any], count: int) -> None:
        self.world.submit(count, **fields)

    @rule(index=INDEX, admin=st.booleans())
    def cancel(self, index: int, admin: bool) -> None:
        requests = list(self.world.callers.values())
        if requests:
            reason = Reason.CANCELLED_BY_ADMIN if admin else Reason.CANCELLED_BY_CLIENT
            self.world.cancel(requests[index % len(requests)].request, reason=reason)

    # What nodes do.

    def live(self, name: str) -> Agent | None:
        """The node's agent, if it can say something now."""
        agent = self.world.agents.get(name)
        return agent if agent is not None and agent.connected and not agent.frozen else None

    def pick(self, index: int) -> tuple[Agent, Held] | None:
        """One of all items that agents hold which can say something now."""
        live = [a for name in self.world.agents if (a := self.live(name)) is not None]
        held = [(a, h) for a in live for h in a.held.values()]
        return held[index % len(held)] if held else None

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        """First hello, or that of a new process after the old one died."""
        agent = self.world.agents.get(name)
        if agent is None:
            self.world.agents[name] = Agent(self.world, name, spec_of(name), f"{name}-boot")
            self.world.agents[name].join()
        elif not agent.connected:
            self.forget(agent)
            agent.frozen = False
            agent.restart()

    @rule(name=NAMES, dropped=st.integers(0, 3))
    def rejoin(self, name: str, dropped: int) -> None:
        """The same process on a new stream; some of what was sent to it never arrived."""
        agent = self.world.agents.get(name)
        if agent is None or agent.frozen:
            return
        for dispatch_id in list(agent.held)[:dropped]:
            del agent.held[dispatch_id]
        self.forget(agent)
        agent.join()

    @rule(name=NAMES, obeys=st.booleans())
    def claim(self, name: str, obeys: bool) -> None:
        """Another process says that it is that node."""
        holder = self.world.agents.get(name)
        if holder is not None:
            newcomer = Agent(self.world, name, spec_of(name), f"{name}-{self.world.new_epoch()}")
            newcomer.obeys = obeys
            newcomer.join()

    @rule(name=NAMES, goodbye=st.booleans(), dies=st.booleans())
    def break_stream(self, name: str, goodbye: bool, dies: bool) -> None:
        agent = self.world.agents.get(name)
        if agent is not None and agent.connected:
            self.forget(agent)
            if dies:
                agent.held.clear()
            agent.lose_stream(goodbye=goodbye and not agent.held)

    def forget(self, agent: Agent) -> None:
        """Remember its session as a dead one."""
        self.old += [(agent.node_id, agent.epoch, d) for d in agent.held]

    @rule(name=NAMES, frozen=st.booleans())
    def freeze(self, name: str, frozen: bool) -> None:
        agent = self.world.agents.get(name)
        if agent is not None:
            agent.frozen = frozen

    @rule(name=NAMES, obeys=st.booleans())
    def turn_deaf(self, name: str, obeys: bool) -> None:
        agent = self.world.agents.get(name)
        if agent is not None:
            agent.obeys = obeys

    @rule(index=INDEX)
    def run(self, index: int) -> None:
        picked = self.pick(index)
        if picked is not None:
            picked[0].run(picked[1].attempt.request)

    @rule(index=INDEX, length=st.integers(0, 3))
    def speak(self, index: int, length: int) -> None:
        """Any item that is held, live or revoked."""
        picked = self.pick(index)
        if picked is not None:
            picked[0].speak_held(picked[1], length)

    @rule(held_back=st.booleans())
    def begun(self, held_back: bool) -> None:
        self.world.hold_begun = held_back
        if not held_back:
            self.world.tell_begun()

    @rule(index=INDEX, end=st.sampled_from(ENDS), whole=st.booleans())
    def finish(self, index: int, end: dict[str, Any], whole: bool) -> None:
        """One item, or all that the agent holds."""
        picked = self.pick(index)
        if picked is not None:
            agent, held = picked
            agent.finish_ids(list(agent.held) if whole else [held.attempt.dispatch_id], **end)

    @rule(
        index=INDEX,
        end=st.sampled_from(ENDS),
        whole=st.booleans(),
        later_s=st.sampled_from([0.0, 0.001, 1.0]),
    )
    def free_first(self, index: int, end: dict[str, Any], whole: bool, later_s: float) -> None:
        """Credit for one item, or all that the agent holds, ahead of the results."""
        picked = self.pick(index)
        if picked is not None:
            agent, held = picked
            ids = list(agent.held) if whole else [held.attempt.dispatch_id]
            agent.free_ids(ids)
            self.world.advance(later_s)
            agent.finish_ids(ids, **end)

    @precondition(lambda self: self.old)
    @rule(index=INDEX, end=st.sampled_from(ENDS))
    def answer_late(self, index: int, end: dict[str, Any]) -> None:
        """A result of a session that is no more, or of an id that is not live."""
        node_id, epoch, dispatch_id = self.old[index % len(self.old)]
        node = self.world.scheduler.state.nodes.get(node_id)
        if node is None or node.epoch != epoch:
            items = [ev.ItemEnd(dispatch_id, **end)]
            self.world.step(ev.ItemsFinished(node_id, epoch, items))

    @rule(name=NAMES, lost=st.integers(0, 2), bogus=st.lists(st.integers(1, 50), max_size=2))
    def report(self, name: str, lost: int, bogus: list[int]) -> None:
        """True, or of a node that lost some items and runs some that nobody sent."""
        agent = self.live(name)
        if agent is None:
            return
        for dispatch_id in list(agent.held)[:lost]:
            del agent.held[dispatch_id]
        held = {"e0": [*agent.held, *bogus]}
        agent.report(held=held)
        self.world.step(agent.credits())

    @rule(name=NAMES, ill=st.booleans(), inactive=st.booleans())
    def sicken(self, name: str, ill: bool, inactive: bool) -> None:
        agent = self.live(name)
        if agent is not None:
            agent.report(
                unhealthy={"e0": "stalled"} if ill else {},
                inactive_models={"e0": ["m"]} if inactive else {},
            )

    @rule(slots=st.integers(1, 3))
    def resize(self, slots: int) -> None:
        """Slots of a continuous and of a static engine change while they work."""
        able = [model("m", context_length=8_000), model("s")]
        plain = [model("m", resumable=False, context_length=4_000)]
        if (agent := self.live("a")) is not None:
            agent.describe(engine("e0", slots=slots, models=able), engine("e1", models=["s"]))
        if (agent := self.live("b")) is not None:
            agent.describe(static("e0", slots=slots, models=plain))

    # The common case, often: faults need something to hit.

    @rule(
        actions=st.lists(
            st.tuples(st.sampled_from(["submit", "speak", "run", "finish", "tick"]), INDEX),
            min_size=1,
            max_size=8,
        )
    )
    def work(self, actions: list[tuple[str, int]]) -> None:
        """Plain requests come, stream and finish."""
        for what, index in actions:
            picked = self.pick(index)
            if what == "submit":
                self.world.submit(priority=1 + index % 10, stream=True)
            elif what == "tick":
                self.world.advance(0.05)
            elif picked is not None and what == "speak":
                picked[0].speak_held(picked[1], 2)
            elif picked is not None and what == "run":
                picked[0].run(picked[1].attempt.request)
            elif picked is not None:
                picked[0].finish_ids([picked[1].attempt.dispatch_id])

    # What operators and time do.

    @rule(name=NAMES, cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        self.world.step(ev.NodeCordoned(name, cordoned))

    @rule(name=NAMES, grace=st.sampled_from([0, 1, 5]), by_agent=st.booleans())
    def drain(self, name: str, grace: int, by_agent: bool) -> None:
        self.world.step(ev.DrainRequested(name, seconds(grace), False, "test", by_agent))

    @rule(duration_s=st.sampled_from([0.001, 0.01, 0.3, 1.0, 2.5, 6.0]))
    def advance(self, duration_s: float) -> None:
        self.world.advance(duration_s)

    # What must hold between all of these.

    @invariant()
    def requests_have_a_result_or_are_known(self) -> None:
        if not hasattr(self, "world"):
            return
        state = self.world.scheduler.state
        for rid, caller in self.world.callers.items():
            assert (caller.result is None) is (rid in state.requests)
            if caller.result is not None:
                assert caller.request.state is RequestState.FINISHED
                assert caller.request.live == {}
                assert len(caller.request.attempts) <= 60

    @invariant()
    def floor_has_its_turn(self) -> None:
        """Of any three consecutive dispatches of a pool one was the floor's."""
        if not hasattr(self, "world"):
            return
        commands, self.seen = self.world.commands[self.seen :], len(self.world.commands)
        sent = [a for c in commands if isinstance(c, cmd.DispatchBatch) for a in c.batch.attempts]
        for attempt in sorted(sent, key=lambda a: a.dispatch_id):  # of all engines, in turn
            if attempt.chosen_by not in ("apart", "hedge"):
                self.choices.setdefault(attempt.model, []).append(attempt.chosen_by)
        for chosen in self.choices.values():
            for start in range(max(0, len(chosen) - 20), len(chosen) - FLOOR + 1):
                assert "floor" in chosen[start : start + FLOOR]

    def teardown(self) -> None:
        """Heal everything: all that was accepted must come to its end, and nothing stays taken."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.hold_begun = False
        world.tell_begun()
        for name in ("a", "b", "c"):
            self.heal(name)
        for _ in range(80):
            for agent in world.agents.values():
                if agent.connected:
                    agent.report()
                    agent.finish_ids(list(agent.held))
            world.advance(1)
            if not world.scheduler.state.requests:
                break
        for agent in world.agents.values():
            agent.finish_ids(list(agent.held))
            agent.report()
        world.assert_idle()
        self.requests_have_a_result_or_are_known()
        assert all(c.result is not None for c in world.callers.values())

    def heal(self, name: str) -> None:
        """The node is up, well, in service and obeys."""
        world = self.world
        world.advance(1.5)  # claims of its id come to their end
        agent = world.agents.get(name)
        if agent is None:
            world.agents[name] = agent = Agent(world, name, spec_of(name), f"{name}-boot")
        agent.frozen, agent.obeys = False, True
        known = world.scheduler.state.nodes.get(name)
        if not agent.connected or (known is not None and drains.why_it_leaves(known)):
            agent.restart()
        agent.report()
        node = world.scheduler.state.nodes[name]
        if node.availability is not NodeAvailability.ACTIVE:
            world.step(ev.NodeCordoned(name, False))
        world.step(agent.credits())


SchedulerMachine.TestCase.settings = settings(
    max_examples=max(200, settings.default.max_examples),
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSchedulerMachine = SchedulerMachine.TestCase
