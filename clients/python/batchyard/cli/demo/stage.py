"""What runs in the demo: configuration files, and the processes with them.

scheduler     ports of its own; scales out by its process actuator, at most one node more
primary-1, 2  the model, four slots, one thread each
backup-1      the same, for when no primary can; and a small stand-in model to degrade to
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchyard.cli.demo.board import Board
from batchyard.cli.dev.child import LogSink
from batchyard.cli.dev.engines import WEIGHTS, EngineChoice
from batchyard.cli.dev.files import DRAIN_GRACE, SHUTDOWN_GRACE
from batchyard.cli.dev.ports import Ports
from batchyard.cli.dev.tree import AgentSpec, Tree

PRIMARIES: Final = ("primary-1", "primary-2")
BACKUP: Final = "backup-1"
NODES: Final = len(PRIMARIES) + 1
SLOTS: Final = 4
# Its answers are made up: no real model is small enough to stand in for 135 million parameters.
SUBSTITUTE: Final = "tiny-simulated"
SCALE_OUT_QUEUE: Final = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """How the demo's times follow from the engine."""

    rounds: int  # of the measurement; the best one counts
    max_wait_s: float  # of the request that is degraded


REAL: Final = Pace(rounds=2, max_wait_s=1.0)
SIMULATED: Final = Pace(rounds=1, max_wait_s=0.4)


class Stage:
    """The processes of the demo, owned by this one."""

    def __init__(self, folder: Path, choice: EngineChoice, board: Board, on_line: LogSink) -> None:
        """Write the configuration into `folder`, which has to outlive the processes."""
        self.choice = choice
        self.pace = REAL if choice.kind == "llamacpp" else SIMULATED
        self._board = board
        self._killed: set[str] = set()
        self._configs = {
            "primary": _dump(folder / "primary.yaml", agent_config(choice)),
            "backup": _dump(folder / "backup.yaml", backup_config(choice)),
        }
        scheduler = _dump(folder / "scheduler.yaml", scheduler_config(self._configs["primary"]))
        self.tree = Tree(Ports(0), scheduler, on_line, log_level="warning")

    @property
    def model(self) -> str:
        return self.choice.model

    async def start_scheduler(self) -> None:
        """Start it and wait until it serves."""
        await self.tree.start_scheduler()
        assert self.tree.scheduler is not None
        self._mind_the_end_of("scheduler", self.tree.scheduler)

    async def start_agents(self) -> None:
        """Start all three, and wait until each has joined; models may still load."""
        for node_id in PRIMARIES:
            await self._start_agent(node_id, "primary")
        await self._start_agent(BACKUP, "backup")
        await self.tree.until_healthy(NODES)

    def kill(self, node_id: str) -> int:
        """SIGKILL the agent; its process id."""
        self._killed.add(node_id)
        child = self.tree.agents[node_id]
        child.kill()
        return child.process.pid

    def expect_ends(self) -> None:
        """From now on processes may end."""
        self._killed |= {"scheduler", *self.tree.agents}

    async def _start_agent(self, node_id: str, role: str) -> None:
        child = await self.tree.start_agent(AgentSpec(node_id, self._configs[role]))
        self._mind_the_end_of(node_id, child)

    def _mind_the_end_of(self, name: str, child: Any) -> None:
        def ended(_: object) -> None:
            if name not in self._killed:
                last = list(child.log)[-1:]
                self._board.fail(" ".join([f"{name} {child.end_text()}", *last]))

        child.exited.add_done_callback(ended)


def scheduler_config(agent_config: Path) -> dict[str, Any]:
    """Defaults but for the scaling, and a shorter window before a lost node is given up."""
    return {
        "version": 1,
        "shutdown_grace": SHUTDOWN_GRACE,
        "health": {"resume_window": "500ms"},
        "autoscale": {
            "enabled": True,
            "actuator": "process",
            "min": 0,
            "max": NODES + 1,
            "tick": "200ms",
            "queue": SCALE_OUT_QUEUE,
            "idle": "10m",
            "drain_grace": DRAIN_GRACE,
            "process": {"agent_config": str(agent_config)},
        },
    }


def agent_config(choice: EngineChoice) -> dict[str, Any]:
    """A primary: the model, on one thread."""
    engine: dict[str, Any] = {"kind": choice.kind, "slots": SLOTS}
    if choice.kind == "llamacpp":
        engine |= {"package": WEIGHTS, "model": choice.model, "threads": 1}
    else:
        engine |= {"models": [choice.model], "latency": "100ms", "latency_per_token": "40ms"}
    return {"version": 1, "drain_grace": DRAIN_GRACE, "engines": [engine]}


def backup_config(choice: EngineChoice) -> dict[str, Any]:
    """The backup: as a primary, and with the substitute beside it."""
    config = agent_config(choice)
    substitute = {
        "id": "substitute",
        "kind": "simulated",
        "models": [SUBSTITUTE],
        "slots": 2,
        "latency": "50ms",
        "latency_per_token": "5ms",
    }
    return {**config, "role": "backup", "engines": [*config["engines"], substitute]}


def _dump(path: Path, document: dict[str, Any]) -> Path:
    import yaml

    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
