"""The processes that are measured: how are they started, pinned, read and ended?

With two cores or more, what is measured has one to itself, and the load and the agents share the
others; so neither slows the other, and a rate never hides in the load's own cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import psutil

from benchmarks.machine import ROOT

START_S = 60.0
END_S = 15.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where. Empty sets: nobody is pinned."""

    subject: frozenset[int]
    load: frozenset[int]

    @classmethod
    def divide(cls) -> Cores:
        """The first core for the subject, the rest for the load; one core alone is shared."""
        if not hasattr(os, "sched_setaffinity"):
            return cls(frozenset(), frozenset())
        first, *rest = sorted(os.sched_getaffinity(0))
        if not rest:
            return cls(frozenset(), frozenset())
        return cls(frozenset([first]), frozenset(rest))

    def __str__(self) -> str:
        if not self.subject:
            return "not pinned: all processes share what there is"
        load = f"{len(self.load)} other core" + ("s" if len(self.load) > 1 else "")
        return f"the scheduler (or its limit) has one core, load and agent share {load}"


def pin(pid: int, cores: frozenset[int]) -> None:
    """Keep a process (0: this one) to these cores; empty: leave it."""
    if cores:
        os.sched_setaffinity(pid, cores)


class Child:
    """One process under measurement or beside it. It ends with this one, however that ends."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.name = name
        self.start_s = 0.0  # from the start of the process to its ready line
        self.ready = ""
        self._process = process
        self._errors = errors
        self._watch = psutil.Process(process.pid)

    @classmethod
    async def start(
        cls,
        module: str,
        *arguments: str,
        cores: frozenset[int],
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Start `python -m module` and wait for its first line. `env`: variables more than ours."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, "--exit-with-stdin",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            env={**_environment(), **(env or {})}, cwd=ROOT,
        )  # fmt: skip
        pin(process.pid, cores)
        child = cls(module, process, errors)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                child.ready = (await process.stdout.readline()).decode()
        except TimeoutError:
            await child.end()
        child.start_s = time.perf_counter() - began
        if not child.ready:
            raise RuntimeError(f"{module} did not start:\n{child.said()}")
        return child

    @property
    def addresses(self) -> dict[str, Any]:
        """What its ready line says, where that is JSON."""
        stated: dict[str, Any] = json.loads(self.ready)
        return stated

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time that it has used so far, over all its threads."""
        times = self._watch.cpu_times()
        return times.user + times.system

    def preemptions(self) -> int:
        """How often its main thread had to make way for another process."""
        count: int = self._watch.num_ctx_switches().involuntary
        return count

    def rss_bytes(self) -> int:
        """Memory that it holds now."""
        rss: int = self._watch.memory_info().rss
        return rss

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    async def end(self) -> None:
        """Close its standard input and wait; kill it if it does not end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._errors.close()


@contextlib.asynccontextmanager
async def child(
    module: str, *arguments: str, cores: frozenset[int], env: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """A process for the length of a block."""
    started = await Child.start(module, *arguments, cores=cores, env=env)
    try:
        yield started
    finally:
        await started.end()


def scheduler(
    *arguments: str, cores: frozenset[int], env: Mapping[str, str] | None = None
) -> contextlib.AbstractAsyncContextManager[Child]:
    """A scheduler on free ports."""
    ports = [f"--{kind}-port=0" for kind in ("client", "node", "admin", "http")]
    return child("scheduler_service", *ports, *arguments, cores=cores, env=env)


def _environment() -> dict[str, str]:
    """The caller's, without what would configure or trace what is measured."""
    foreign = ("BATCHYARD_", "OTEL_", "PYTHON", "GRPC_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    return {**kept, "XDG_CONFIG_HOME": os.devnull, "PYTHONUNBUFFERED": "1"}
