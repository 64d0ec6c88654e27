"""Which GPUs does each engine own? Those on which a process of its server computes.

Found out by process id: NVML lists who computes on a GPU; an engine's processes are its children,
or whoever listens at its address on this machine, with all that they have started. Where nobody can
be asked (processes of another user or namespace, a server elsewhere) it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from node_agent.hardware import GpuSample


@dataclass(slots=True, frozen=True)
class Place:
    """Where an engine runs."""

    pids: tuple[int, ...] = ()  # its children; empty: it has none
    address: str = ""  # where it is reached; empty: in process, or unknown


def find_owners(
    places: Mapping[str, Place], gpus: Sequence[GpuSample]
) -> dict[str, tuple[int, ...]]:
    """Indexes of the GPUs of each engine, by engine id; without those that own none, or unknown."""
    users = {gpu.index: gpu.pids for gpu in gpus if gpu.pids}
    if not users:
        return {}
    listeners = _listeners({_port(p.address) for p in places.values() if not p.pids} - {0})
    roots: dict[int, list[str]] = {}  # engine ids, by process id
    for engine_id, place in places.items():
        for pid in place.pids or listeners.get(_port(place.address), ()):
            roots.setdefault(pid, []).append(engine_id)
    owned: dict[str, set[int]] = {}
    for index, pids in users.items():
        for pid in pids:
            for engine_id in _engines_of(pid, roots):
                owned.setdefault(engine_id, set()).add(index)
    return {engine_id: tuple(sorted(indexes)) for engine_id, indexes in owned.items()}


def _engines_of(pid: int, roots: Mapping[int, list[str]]) -> list[str]:
    """The engines whose process it is, or whose process started it, the nearest one."""
    if pid in roots:
        return roots[pid]
    try:
        parents = psutil.Process(pid).parents()
    except psutil.Error:
        return []
    return next((roots[parent.pid] for parent in parents if parent.pid in roots), [])


def _port(address: str) -> int:
    """The port of a server on this machine; 0: it is none."""
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
        return parts.port or 0 if local else 0
    except ValueError:
        return 0


def _listeners(ports: set[int]) -> dict[int, list[int]]:
    """Ids of the processes that listen at these ports."""
    found: dict[int, list[int]] = {}
    if not ports:
        return found
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return found
    for each in connections:
        port = each.laddr.port if each.laddr else 0
        if each.status == psutil.CONN_LISTEN and each.pid and port in ports:
            found.setdefault(port, []).append(each.pid)
    return found
