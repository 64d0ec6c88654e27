"""What stands between this host and a working node? Looks at each thing once, and says what to do.

`batchyard doctor --agent` and `batchyard agent --doctor` with the flags or the file of the agent:
its engines are started as the agent would start them (one that runs is attached to), asked for a
first answer, and left. The scheduler is asked without joining it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.config import AgentConfig
from node_agent.doctor_scheduler import scheduler_findings
from node_agent.engines.interface import Engine, EngineStartError, Load
from node_agent.engines.openai import OpenaiEngine
from node_agent.hardware import HostProbe
from node_agent.nvml import open_nvml
from service_kit.doctor import Finding, found, say

ENGINE_S = 60.0  # for an engine to serve
IN_VAIN_S = 5.0  # for one that needs something done to it, and may just be getting it
LOOK_S = 0.2
OPTIONS: Final = "mend that, or the options of the engine"
LOADS: Final = "its own log says how far it is; look again, or see what it waits for"


class Silent:
    """A sink for engines that are given nothing to do."""

    def running(self, dispatch_id: int, batch_size: int) -> None:
        """Nothing runs."""

    def delta(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """Nothing speaks."""

    def extra(self, dispatch_id: int, choice: int, channel: int, extra: types.DeltaExtra) -> None:
        """Nothing speaks."""

    def freed(self, dispatch_ids: Sequence[int]) -> None:
        """Nothing ends."""

    def finished(self, dispatch_id: int, result: object) -> None:
        """Nothing ends."""

    def together(self) -> AbstractContextManager[None]:
        """Nothing happens."""
        return nullcontext()

    def changed(self) -> None:
        """It is looked at once."""


async def examine(
    config: AgentConfig, engines: dict[str, Engine], node_id: str, *, form: str = "text"
) -> int:
    """Look at everything and print it, as lines or ("json") as one list of rows; 0: nothing fails,
    1: something does.
    """
    rows: list[Finding] = []
    show = say if form == "text" else rows.append
    failed = False
    for name, engine in engines.items():
        for finding in await engine_findings(name, engine):
            show(finding)
            failed |= finding.sound is False
    for finding in (*gpu_findings(config), *await scheduler_findings(config, node_id)):
        show(finding)
        failed |= finding.sound is False
    if form == "json":
        sys.stdout.write(json.dumps([finding.row() for finding in rows]) + "\n")
    return int(failed)


async def engine_findings(name: str, engine: Engine) -> list[Finding]:
    """What an engine of this host is, and whether it answers."""
    began = time.monotonic()
    start = asyncio.create_task(engine.start(Silent()))
    try:
        await _wait_while_it_helps(start, engine)
        if not start.done():
            load, waited_s = engine.load(), time.monotonic() - began
            says = f"does not serve within {waited_s:.1f} s: {load.message or 'it says nothing'}"
            return [found(f"engine {name}", False, says, load.remedy or LOADS)]
        await start
    except EngineStartError as fault:
        return [found(f"engine {name}", False, f"does not serve: {fault}", OPTIONS)]
    else:
        took_s = time.monotonic() - began
        return list(_describe(name, engine, engine.describe(), engine.load(), took_s))
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await engine.stop(0)


async def _wait_while_it_helps(start: asyncio.Task[None], engine: Engine) -> None:
    """Return when it serves, cannot, or is not likely to soon."""
    began = in_vain_since = time.monotonic()
    while not start.done():
        await asyncio.wait({start}, timeout=LOOK_S)
        now = time.monotonic()
        if not engine.load().remedy:
            in_vain_since = now
        if now - in_vain_since >= IN_VAIN_S or now - began >= ENGINE_S:
            return


def gpu_findings(config: AgentConfig) -> Iterator[Finding]:
    """Which GPUs are seen, and whether the engines' are among them."""
    gpus = HostProbe(open_nvml()).gpus()
    named = {gpu for engine in config.engines for gpu in engine.options.get("gpus") or ()}
    if not gpus:
        remedy = "install the driver and batchyard[gpu], and let this user see the devices"
        yield found(
            "GPUs", False if named else None, "none is seen by NVML", remedy if named else ""
        )
        return
    for gpu in gpus:
        part = f", {gpu.mig_uuid}" if gpu.mig_uuid else ""
        yield found(f"GPU {gpu.index}", True, f"{gpu.model}, driver {gpu.driver_version}{part}")
    for index in sorted(named - {gpu.index for gpu in gpus}):
        yield found(f"GPU {index}", False, "named and not there", "mend `gpus` of its engine")


def _describe(
    name: str, engine: Engine, about: node.EngineDescriptor, load: Load, took_s: float
) -> Iterator[Finding]:
    check = f"engine {name}"
    yield found(check, True, f"{about.version or about.kind} serves, after {took_s:.1f} s")
    slots = f"{about.slots} slots" + (" (assumed)" if about.slots_assumed else "")
    fix = "set `slots` if you know how many it runs at once" if about.slots_assumed else ""
    yield found(check, None, slots, fix)
    for model in about.models:
        context = f", context {model.context_length}" if model.HasField("context_length") else ""
        adapter = f", adapter of {model.base_model}" if model.base_model else ""
        yield found(check, True, f"model {model.model}{context}{adapter}")
        if not context and about.kind == "openai":
            yield found(check, None, "the context length of it is not told",
                          "set `context_length`")  # fmt: skip
    if load.running is None:
        fix = "switch its metrics on (--metrics, --enable-metrics), if it has any"
        yield found(check, None, "does not tell what runs in it", fix)
    if isinstance(engine, OpenaiEngine):
        yield _priority(check, engine)


def _priority(check: str, engine: OpenaiEngine) -> Finding:
    served = engine.server.served
    if served.priority != "omit":
        return found(check, True, f"orders its requests by priority ({served.priority})")
    fix = {
        "vllm": "start it with --scheduling-policy priority",
        "sglang": "start it with --enable-priority-scheduling",
    }.get(served.kind, "")
    return found(check, None, "knows no priorities; the scheduler's order holds", fix)
