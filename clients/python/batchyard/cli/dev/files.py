"""The configuration files of `dev`, written into a folder that lives as long as it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchyard.cli.dev.engines import WEIGHTS, EngineChoice
from batchyard.cli.dev.tree import AgentSpec

SLOTS = 4
THREADS_MAX = 4
# Sooner than in production, so that one can watch it.
SCALE_IN_IDLE = "15s"
# Within the bounds that the tree sets for an agent and for the scheduler.
DRAIN_GRACE = "8s"
SHUTDOWN_GRACE = "2s"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start."""

    choice: EngineChoice
    scheduler: Path
    agents: list[AgentSpec]
    autoscale: tuple[int, int] | None


def write(
    folder: Path, choice: EngineChoice, *, agents: int, autoscale: tuple[int, int] | None
) -> Plan:
    """Write scheduler.yaml and agent.yaml; with autoscaling the scheduler starts the agents."""
    agent_file = folder / "agent.yaml"
    _dump(agent_file, agent_config(choice, agents=autoscale[1] if autoscale else agents))
    scheduler_file = folder / "scheduler.yaml"
    kept = {"state_dir": str(folder / "state")}  # with the folder: jobs end when `dev` does
    _dump(scheduler_file, scheduler_config(choice.model, agent_file, autoscale) | kept)
    specs = [] if autoscale else [AgentSpec(f"dev-{n}", agent_file) for n in range(1, agents + 1)]
    return Plan(choice, scheduler_file, specs, autoscale)


def scheduler_config(
    model: str, agent_file: Path, autoscale: tuple[int, int] | None
) -> dict[str, Any]:
    """The defaults, and with `autoscale` (fewest, most) an actuator that starts processes here."""
    config: dict[str, Any] = {"version": 1, "shutdown_grace": SHUTDOWN_GRACE}
    config["default_model"] = model
    if autoscale is not None:
        # Known before any node has it: only so is there a pool to start the first node for.
        config["models"] = [model]
        config["autoscale"] = {
            "enabled": True,
            "actuator": "process",
            "min": autoscale[0],
            "max": autoscale[1],
            "idle": SCALE_IN_IDLE,
            "drain_grace": DRAIN_GRACE,
            "process": {"agent_config": str(agent_file)},
        }
    return config


def agent_config(choice: EngineChoice, *, agents: int) -> dict[str, Any]:
    """One engine: the small real model, or a simulated one that is slow enough to be watched."""
    engine: dict[str, Any] = {"kind": choice.kind, "slots": SLOTS}
    if choice.kind == "llamacpp":
        engine |= {"package": WEIGHTS, "model": choice.model, "threads": _threads(agents)}
    else:
        engine |= {"models": [choice.model], "latency": "200ms", "latency_per_token": "30ms"}
    return {"version": 1, "drain_grace": DRAIN_GRACE, "engines": [engine]}


def _threads(agents: int) -> int:
    """A fair share of the cores: llama.cpp's threads spin, so one core is left to the rest."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(THREADS_MAX, (cores - 1) // agents))


def _dump(path: Path, document: dict[str, Any]) -> None:
    import yaml

    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
