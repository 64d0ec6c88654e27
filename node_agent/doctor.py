"""What stands between this host and a working node? Looks at each thing once, and says what to do.

`batchyard agent --doctor` with the flags or the file of the agent: its engines are started as the
agent would start them (one that runs is attached to), asked for a first answer, and left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.config import AgentConfig
from node_agent.engines.interface import Engine, EngineStartError, Load
from node_agent.engines.openai import OpenaiEngine
from node_agent.hardware import HostProbe
from node_agent.nvml import open_nvml
from node_agent.rpc.dial import Dialer, DialError
from node_agent.rpc.settings import MAX_MESSAGE_BYTES
from service_kit.doctor import Finding, say

ENGINE_S = 60.0  # for an engine to serve
DIAL_S = 5.0


class Silent:
    """A sink for engines that are given nothing to do."""

    def running(self, dispatch_id: int, batch_size: int) -> None:
        """Nothing runs."""

    def delta(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """Nothing speaks."""

    def extra(self, dispatch_id: int, choice: int, channel: int, extra: types.DeltaExtra) -> None:
        """Nothing speaks."""

    def finished(self, dispatch_id: int, result: object) -> None:
        """Nothing ends."""

    def together(self) -> AbstractContextManager[None]:
        """Nothing happens."""
        return nullcontext()

    def changed(self) -> None:
        """It is looked at once."""


async def examine(config: AgentConfig, engines: dict[str, Engine]) -> int:
    """Look at everything and print it; 0: nothing fails, 1: something does."""
    failed = False
    for name, engine in engines.items():
        for finding in await engine_findings(name, engine):
            failed |= say(finding)
    for finding in (*gpu_findings(config), await scheduler_finding(config)):
        failed |= say(finding)
    return int(failed)


async def engine_findings(name: str, engine: Engine) -> list[Finding]:
    """What an engine of this host is, and whether it answers."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(ENGINE_S):
            await engine.start(Silent())
    except EngineStartError as fault:
        return [Finding(False, f"engine {name}: does not serve", str(fault))]
    except TimeoutError:
        why = engine.load().message or "it says nothing"
        text = f"is it there, and is its address right? It said: {why}"
        return [Finding(False, f"engine {name}: does not serve within {ENGINE_S:g} s", text)]
    else:
        took_s = time.monotonic() - began
        return list(_describe(name, engine, engine.describe(), engine.load(), took_s))
    finally:
        await engine.stop(0)


def gpu_findings(config: AgentConfig) -> Iterator[Finding]:
    """Which GPUs are seen, and whether the engines' are among them."""
    gpus = HostProbe(open_nvml()).gpus()
    named = {gpu for engine in config.engines for gpu in engine.options.get("gpus") or ()}
    if not gpus:
        remedy = "install the driver and batchyard[gpu], and let this user see the devices"
        yield Finding(False if named else None, "no GPU is seen by NVML", remedy if named else "")
        return
    for gpu in gpus:
        yield Finding(True, f"GPU {gpu.index}: {gpu.model}, driver {gpu.driver_version}")
    for index in sorted(named - {gpu.index for gpu in gpus}):
        yield Finding(False, f"GPU {index} is named and not there", "mend `gpus` of its engine")


async def scheduler_finding(config: AgentConfig) -> Finding:
    """Whether the scheduler's node port can be reached from here."""
    address = config.scheduler.address
    what = f"scheduler {address}"
    try:
        channel = Dialer(config.scheduler).channel(address)
    except DialError as fault:
        return Finding(False, what, str(fault))
    began = time.monotonic()
    try:
        async with asyncio.timeout(DIAL_S):
            await channel.channel_ready()
    except TimeoutError:
        remedy = "is it up, is this its node port, do TLS and its authority fit? See --scheduler"
        return Finding(False, f"{what}: no connection within {DIAL_S:g} s", remedy)
    finally:
        await channel.close()
    took_ms = (time.monotonic() - began) * 1e3
    limit = MAX_MESSAGE_BYTES >> 20
    return Finding(True, f"{what}: connected in {took_ms:.0f} ms, messages up to {limit} MiB")


def _describe(
    name: str, engine: Engine, about: node.EngineDescriptor, load: Load, took_s: float
) -> Iterator[Finding]:
    what = f"engine {name}: {about.version or about.kind} serves, after {took_s:.1f} s"
    yield Finding(True, what)
    slots = f"{about.slots} slots" + (" (assumed)" if about.slots_assumed else "")
    remedy = "set `slots` if you know how many it runs at once" if about.slots_assumed else ""
    yield Finding(None, f"engine {name}: {slots}", remedy)
    for model in about.models:
        context = f", context {model.context_length}" if model.HasField("context_length") else ""
        adapter = f", adapter of {model.base_model}" if model.base_model else ""
        yield Finding(True, f"engine {name}: model {model.model}{context}{adapter}")
        if not context and about.kind == "openai":
            yield Finding(None, f"engine {name}: the context length of it is not told",
                          "set `context_length`")  # fmt: skip
    if load.running is None:
        remedy = "switch its metrics on (--metrics, --enable-metrics), if it has any"
        yield Finding(None, f"engine {name}: does not tell what runs in it", remedy)
    if isinstance(engine, OpenaiEngine):
        yield _priority(name, engine)


def _priority(name: str, engine: OpenaiEngine) -> Finding:
    served = engine.server.served
    if served.priority != "omit":
        return Finding(True, f"engine {name}: orders its requests by priority ({served.priority})")
    remedy = {
        "vllm": "start it with --scheduling-policy priority",
        "sglang": "start it with --enable-priority-scheduling",
    }.get(served.kind, "")
    return Finding(None, f"engine {name}: knows no priorities; the scheduler's order holds", remedy)
