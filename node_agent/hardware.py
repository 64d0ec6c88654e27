"""What is this machine, and how busy is it?

CPU and memory count what the container may use (cgroup v2), not what the machine has. Everything
may be unknown; nothing here raises for want of a file, a limit or a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from node_agent import clock

CGROUP = Path("/sys/fs/cgroup")


@dataclass(slots=True, frozen=True, kw_only=True)
class GpuFacts:
    """A GPU as it is built, or a MIG instance of one, which has the index and uuid of its GPU."""

    index: int
    uuid: str = ""
    model: str = ""
    memory_bytes: int | None = None
    driver_version: str = ""
    mig_uuid: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class GpuSample:
    """A GPU as it fares now; None is unknown."""

    index: int
    uuid: str = ""
    utilization: float | None = None  # 0..1
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    throttle_reasons: int | None = None
    uncorrected_ecc_errors: int | None = None
    last_xid: int | None = None  # None: none was seen since the agent looks
    pids: frozenset[int] | None = None  # that compute on it, as this process sees them


@dataclass(slots=True, frozen=True, kw_only=True)
class HardwareSample:
    """The machine as it fares now; None is unknown."""

    cpu_utilization: float | None = None  # 0..1 of what the container may use
    memory_utilization: float | None = None  # likewise
    gpus: Sequence[GpuSample] = field(default_factory=tuple)


class HardwareProbe(Protocol):
    """Where samples come from. Called in a thread, one call at a time."""

    def gpus(self) -> list[GpuFacts]:
        """The GPUs of this machine."""
        ...

    def sample(self) -> HardwareSample:
        """How busy the machine is."""
        ...


class GpuProbe(Protocol):
    """The GPU half of a probe."""

    def gpus(self) -> list[GpuFacts]:
        """The GPUs that are there."""
        ...

    def samples(self) -> list[GpuSample]:
        """How each of them fares."""
        ...


class FixedProbe:
    """A probe that says what it was told."""

    def __init__(self, sample: HardwareSample | None = None, gpus: Sequence[GpuFacts] = ()) -> None:
        self._sample = sample or HardwareSample()
        self._gpus = list(gpus)

    def gpus(self) -> list[GpuFacts]:
        """As told."""
        return self._gpus

    def sample(self) -> HardwareSample:
        """As told."""
        return self._sample


class HostProbe:
    """This host, or the part of it that the container may use."""

    def __init__(self, gpu_probe: GpuProbe | None = None, cgroup: Path = CGROUP) -> None:
        self._gpu_probe = gpu_probe
        self._cgroup = cgroup
        self._cpus = cpu_limit(cgroup)
        self._memory_limit = memory_limit(cgroup)
        self._cpu_before: tuple[int, float] | None = None  # (instant, CPU seconds used by then)

    def gpus(self) -> list[GpuFacts]:
        """What the GPU probe finds."""
        return self._gpu_probe.gpus() if self._gpu_probe is not None else []

    def sample(self) -> HardwareSample:
        """CPU since the last sample, memory and GPUs now."""
        return HardwareSample(
            cpu_utilization=self._cpu_utilization(),
            memory_utilization=self._memory_utilization(),
            gpus=self._gpu_probe.samples() if self._gpu_probe is not None else [],
        )

    def _cpu_utilization(self) -> float | None:
        used_s = _cgroup_cpu_s(self._cgroup)
        if used_s is None:
            times = psutil.cpu_times()
            used_s = sum(times) - times.idle - getattr(times, "iowait", 0.0)
            # Guest time is in user time already.
            used_s -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        now_ns = clock.now_ns()
        before, self._cpu_before = self._cpu_before, (now_ns, used_s)
        if before is None or now_ns <= before[0]:
            return None
        share = (used_s - before[1]) / ((now_ns - before[0]) / 1e9 * self._cpus)
        return min(1.0, max(0.0, share))

    def _memory_utilization(self) -> float | None:
        if self._memory_limit is None:
            share = float(psutil.virtual_memory().percent) / 100
            return min(1.0, max(0.0, share))  # a machine that gives memory back has told of 1.06
        used = _number(self._cgroup / "memory.current")
        if used is None:
            return None
        # The page cache is given back on demand: it is not in the way of anything.
        cache = _stat(self._cgroup / "memory.stat", "inactive_file") or 0
        return min(1.0, max(0, used - cache) / self._memory_limit)


def cpu_limit(cgroup: Path = CGROUP) -> float:
    """CPUs that may be used: the least of affinity and quota."""
    if hasattr(os, "sched_getaffinity"):
        cpus = float(len(os.sched_getaffinity(0)))
    else:
        cpus = float(psutil.cpu_count() or 1)
    words = _text(cgroup / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        cpus = min(cpus, int(words[0]) / int(words[1]))
    return max(cpus, 0.01)


def memory_limit(cgroup: Path = CGROUP) -> int | None:
    """Bytes that may be used by the cgroup; None: not limited below the machine."""
    limit = _number(cgroup / "memory.max")
    return limit if limit and limit < psutil.virtual_memory().total else None


def _cgroup_cpu_s(cgroup: Path) -> float | None:
    """CPU seconds used by the container; None where the whole machine is to be counted."""
    if not (cgroup / "cpu.max").exists():  # the root of the hierarchy has no such file
        return None
    used_us = _stat(cgroup / "cpu.stat", "usage_usec")
    return None if used_us is None else used_us / 1e6


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _stat(path: Path, name: str) -> int | None:
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
