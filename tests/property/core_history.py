"""Plays random histories on the core and prints a digest of all commands and records of each.

`python -m tests.property.core_history SEED...`. They must be the same in every process.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable

from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import Reason, RequestClass
from scheduler_service.core.types import NEVER, Attempt, Batch, Request
from tests.builders import World, engine, model, seconds, static

Meddle = Callable[[World, int], None]


def digest(seed: int, steps: int = 300, *, policies: PolicySet | None = None) -> str:
    """The digest of one history."""
    lines = history(seed, steps, policies=policies)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def history(
    seed: int,
    steps: int = 300,
    *,
    policies: PolicySet | None = None,
    meddle: Meddle | None = None,
) -> list[str]:
    """All that is decided. `meddle` is called before each step with its number."""
    draw = random.Random(seed)
    world = World(known_models=frozenset({"m", "s", "x", "y", "z"}), policies=policies)
    for name in "cab":
        world.agent(name, engine(slots=2, models=["m", "s"]), static("s0", models=["x", "m"]))
    world.agent("d", engine(models=[model("y"), model("z"), model("m")]), role="backup")
    for number in range(steps):
        if meddle is not None:
            meddle(world, number)
        _happen(world, draw)
    lines = [_line(c) for c in world.commands]
    lines += [f"{r.at} {r.kind} {r.node_id} {r.pool} {r.data}" for r in world.records]
    return lines


def _happen(world: World, draw: random.Random) -> None:
    agent = world.agents[draw.choice("abcd")]
    what = draw.randrange(9)
    if what <= 2:
        world.submit(
            draw.randint(1, 6),
            model=draw.choice("msxyz"),
            priority=draw.randint(1, 10),
            stream=draw.random() < 0.5,
            request_class=draw.choice(list(RequestClass)),
            degrade=draw.choice([(), ("s", "m")]),
            max_wait=seconds(draw.choice([1, 5, 50])),
            tenant=draw.choice(["", "t", "u"]),
            deadline=draw.choice([NEVER, world.now + seconds(60)]),
        )
    elif what == 3:
        world.advance(draw.choice([0.01, 0.2, 2.0]))
    elif what == 4 and agent.connected:
        agent.lose_stream()
        world.advance(draw.choice([0.0, 1.0, 3.0]))
        draw.choice([agent.join, agent.restart])()
    elif what == 5 and world.scheduler.state.requests:
        world.cancel(draw.choice(list(world.scheduler.state.requests.values())))
    elif what == 6:
        world.step(ev.NodeCordoned(agent.node_id, draw.random() < 0.5))
    elif agent.connected and agent.held:
        reason = draw.choice([Reason.NONE, Reason.NONE, Reason.ENGINE_ERROR])
        agent.finish_ids([draw.choice(list(agent.held))], reason=reason)


def _line(command: cmd.Command) -> str:
    """All that a command says, by value."""
    fields = {name: getattr(command, name) for name in type(command).__slots__}
    return f"{type(command).__name__} { ({n: _value(v) for n, v in fields.items()}) }"


def _value(value: object) -> object:
    if isinstance(value, Request):
        return (value.rid, value.served_model, value.state.name, value.reason.name)
    if isinstance(value, Attempt):
        return (value.dispatch_id, value.number, value.node.node_id, value.state.name)
    if isinstance(value, Batch):
        return (value.batch_id, value.close_reason, [_value(a) for a in value.attempts])
    if isinstance(value, list | tuple):
        return [_value(one) for one in value]
    return value


if __name__ == "__main__":
    print(*(digest(int(seed)) for seed in sys.argv[1:]))
