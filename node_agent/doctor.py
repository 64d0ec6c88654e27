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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import grpc

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent import clock
from node_agent.config import AgentConfig
from node_agent.engines.interface import Engine, EngineStartError, Load
from node_agent.engines.openai import OpenaiEngine
from node_agent.hardware import HostProbe
from node_agent.nvml import open_nvml
from node_agent.rpc.dial import Dialer, DialError
from node_agent.rpc.settings import MAX_MESSAGE_BYTES
from service_kit import greeting
from service_kit.doctor import Finding, say
from service_kit.version import package_version

ENGINE_S = 60.0  # for an engine to serve
AWAY_S = 10.0  # for one to be there at all
DIAL_S = 5.0
OFFSET_S = 0.5  # of clocks, from which on times of traces and events mislead
_REMEDIES: Final = {
    grpc.StatusCode.UNAUTHENTICATED: "set scheduler.token_file, or scheduler.tls.certificate",
    grpc.StatusCode.PERMISSION_DENIED: "its token or certificate is not one of an agent",
    grpc.StatusCode.UNIMPLEMENTED: "that is not its node port: 7612 by default",
}


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
    found: list[Finding] = []
    show = say if form == "text" else found.append
    failed = False
    for name, engine in engines.items():
        for finding in await engine_findings(name, engine):
            show(finding)
            failed |= finding.sound is False
    for finding in (*gpu_findings(config), *await scheduler_findings(config, node_id)):
        show(finding)
        failed |= finding.sound is False
    if form == "json":
        sys.stdout.write(json.dumps([finding.row() for finding in found]) + "\n")
    return int(failed)


async def engine_findings(name: str, engine: Engine) -> list[Finding]:
    """What an engine of this host is, and whether it answers."""
    began = time.monotonic()
    start = asyncio.create_task(engine.start(Silent()))
    try:
        await asyncio.wait({start}, timeout=AWAY_S)
        limit_s = AWAY_S if _is_away(engine.load()) else ENGINE_S
        await asyncio.wait({start}, timeout=limit_s - AWAY_S)
        if not start.done():
            why = engine.load().message or "it says nothing"
            text = f"is it there, and is its address right? It said: {why}"
            return [_found(f"engine {name}", False, f"does not serve within {limit_s:g} s", text)]
        await start
    except EngineStartError as fault:
        return [_found(f"engine {name}", False, "does not serve", str(fault))]
    else:
        took_s = time.monotonic() - began
        return list(_describe(name, engine, engine.describe(), engine.load(), took_s))
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await engine.stop(0)


def _is_away(load: Load) -> bool:
    """Whether nothing listens where the engine should be, so that waiting will hardly help."""
    return "nothing answers" in load.message or "answers UNAVAILABLE" in load.message


def gpu_findings(config: AgentConfig) -> Iterator[Finding]:
    """Which GPUs are seen, and whether the engines' are among them."""
    gpus = HostProbe(open_nvml()).gpus()
    named = {gpu for engine in config.engines for gpu in engine.options.get("gpus") or ()}
    if not gpus:
        remedy = "install the driver and batchyard[gpu], and let this user see the devices"
        yield _found(
            "GPUs", False if named else None, "none is seen by NVML", remedy if named else ""
        )
        return
    for gpu in gpus:
        part = f", {gpu.mig_uuid}" if gpu.mig_uuid else ""
        yield _found(f"GPU {gpu.index}", True, f"{gpu.model}, driver {gpu.driver_version}{part}")
    for index in sorted(named - {gpu.index for gpu in gpus}):
        yield _found(f"GPU {index}", False, "named and not there", "mend `gpus` of its engine")


async def scheduler_findings(config: AgentConfig, node_id: str) -> list[Finding]:
    """Whether the scheduler's node port lets us in, and what it says before anybody joins."""
    address = config.scheduler.address
    began = time.monotonic()
    try:
        dialer = Dialer(config.scheduler)
        node_id = dialer.node_id or node_id  # a certificate's identity wins
        async with dialer.stream(address, ((greeting.ASKED_ID, node_id),)) as call:
            async with asyncio.timeout(DIAL_S):
                told = dict(await call.initial_metadata() or ())
                if not told:
                    code, details = await call.code(), await call.details()
                    fix = _REMEDIES.get(code, "is it up, is this its node port? See --scheduler")
                    return [_found("scheduler", False, f"{address}: {code.name}: {details}", fix)]
    except DialError as fault:
        return [_found("scheduler", False, address, str(fault))]
    except TimeoutError:
        fix = "is it up, is this its node port, do TLS and its authority fit? See --scheduler"
        return [_found("scheduler", False, f"{address}: no answer within {DIAL_S:g} s", fix)]
    return list(_greeted(address, node_id, told, time.monotonic() - began))


def _greeted(
    address: str, node_id: str, told: Mapping[str, str], took_s: float
) -> Iterator[Finding]:
    """What the scheduler says of itself, and what that means for this agent."""
    yield _found("scheduler", True, f"{address} answers in {took_s * 1e3:.0f} ms")
    theirs, ours = told.get(greeting.VERSION, "?"), package_version()
    same = theirs == ours
    fix = "" if same else "use the same version of both"
    yield _found("version", True if same else None, f"scheduler {theirs}, agent {ours}", fix)
    holder = told.get(greeting.HELD_BY, "")
    if holder:
        fix = "fine if that is this host's own agent; else give this one its own: node_id"
        yield _found("name", None, f"{node_id} is connected, from {holder}", fix)
    else:
        yield _found("name", True, f"{node_id}; no connected agent has it")
    yield _clock(told, took_s)
    limit = int(told.get(greeting.MESSAGE_BYTES, 0))
    fits = limit <= MAX_MESSAGE_BYTES
    says = f"up to {limit >> 20} MiB by the scheduler, {MAX_MESSAGE_BYTES >> 20} MiB by the agent"
    fix = "" if fits else "set limits.max_message_bytes of the scheduler to what agents take"
    yield _found("messages", fits, says, fix)


def _clock(told: Mapping[str, str], took_s: float) -> Finding:
    """Both clocks, as far as the way there lets them be compared."""
    here = clock.timestamp().ToNanoseconds() / 1e9 - took_s / 2
    offset_s = here - int(told.get(greeting.TIME_NS, 0)) / 1e9
    close = abs(offset_s) < OFFSET_S + took_s / 2
    fix = "" if close else "let NTP set both clocks: times of traces and events mislead"
    return _found("clock", close or None, f"{offset_s:+.3f} s from the scheduler's", fix)


def _describe(
    name: str, engine: Engine, about: node.EngineDescriptor, load: Load, took_s: float
) -> Iterator[Finding]:
    check = f"engine {name}"
    yield _found(check, True, f"{about.version or about.kind} serves, after {took_s:.1f} s")
    slots = f"{about.slots} slots" + (" (assumed)" if about.slots_assumed else "")
    fix = "set `slots` if you know how many it runs at once" if about.slots_assumed else ""
    yield _found(check, None, slots, fix)
    for model in about.models:
        context = f", context {model.context_length}" if model.HasField("context_length") else ""
        adapter = f", adapter of {model.base_model}" if model.base_model else ""
        yield _found(check, True, f"model {model.model}{context}{adapter}")
        if not context and about.kind == "openai":
            yield _found(check, None, "the context length of it is not told",
                          "set `context_length`")  # fmt: skip
    if load.running is None:
        fix = "switch its metrics on (--metrics, --enable-metrics), if it has any"
        yield _found(check, None, "does not tell what runs in it", fix)
    if isinstance(engine, OpenaiEngine):
        yield _priority(check, engine)


def _priority(check: str, engine: OpenaiEngine) -> Finding:
    served = engine.server.served
    if served.priority != "omit":
        return _found(check, True, f"orders its requests by priority ({served.priority})")
    fix = {
        "vllm": "start it with --scheduling-policy priority",
        "sglang": "start it with --enable-priority-scheduling",
    }.get(served.kind, "")
    return _found(check, None, "knows no priorities; the scheduler's order holds", fix)


def _found(check: str, sound: bool | None, says: str, fix: str = "") -> Finding:
    return Finding(sound, f"{check}: {says}", fix)
