"""How do ServeGen's client windows become requests? Gaps are drawn from each client's own law.

A row says of one client and ten minutes: rate, burstiness, and the law of the gaps (Gamma or
Weibull, with shape and scale). Gaps are drawn from that law and stretched to fill the window, so
the number of requests is right and their clumping is the client's. Clients are tenants.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from scheduler_service.core.types import SECOND, Duration, Instant
from simulator.workload.arrival import Arrival
from simulator.workload.errors import TraceError
from simulator.workload.lengths import Lengths
from simulator.workload.traces import DATA

WINDOW: Final = 600 * SECOND
BUNDLED: Final = DATA / "servegen_m-large_client_windows_7d.csv.gz"


@dataclass(frozen=True, slots=True)
class ClientWindow:
    """One client in one window."""

    client: int
    start: Instant
    rate: float  # requests per second
    law: str  # of the gaps
    shape: float


def is_windows(first: str) -> bool:
    """Whether a file that begins with this line holds client windows."""
    columns = {column.strip() for column in first.split(",")}
    return {"client", "window_start_s", "rate_rps", "pattern", "p1"} <= columns


def windows(path: Path = BUNDLED) -> dict[int, list[ClientWindow]]:
    """All windows of a file, by start in seconds.

    Raises:
        TraceError: it cannot be read as one.
    """
    try:
        return _windows(path)
    except (KeyError, TypeError, ValueError) as fault:
        raise TraceError(f"{path.name}: {fault}") from fault


def _windows(path: Path) -> dict[int, list[ClientWindow]]:
    found: dict[int, list[ClientWindow]] = {}
    zipped = path.read_bytes()[:2] == b"\x1f\x8b"
    opened: Any = gzip.open if zipped else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["pattern"] not in ("Gamma", "Weibull"):
                raise TraceError(f"no law {row['pattern']!r}")
            rate, shape = float(row["rate_rps"]), float(row["p1"])
            if not (0 <= rate < math.inf and 0 < shape < math.inf):
                raise ValueError(f"rate {rate} with shape {shape} is no law of arrivals")
            start = int(row["window_start_s"])
            found.setdefault(start, []).append(
                ClientWindow(
                    int(row["client"]),
                    start * SECOND,
                    rate,
                    row["pattern"],
                    shape,
                )
            )
    return found


def servegen(
    lengths: Lengths,
    *,
    seed: int = 0,
    start: Instant = 0,
    lasts: Duration = 6 * WINDOW,
    scale: float = 1.0,
    path: Path = BUNDLED,
) -> Iterator[Arrival]:
    """Requests of the windows from `start` on, at `scale` times their rate, from instant 0 on."""
    random = Random(f"{seed}/servegen")
    by_start = windows(path)
    for begin in range(start // SECOND, (start + lasts) // SECOND, WINDOW // SECOND):
        streams = [_instants(w, random, scale) for w in by_start.get(begin, ())]
        for at, client in heapq.merge(*streams):
            prompt, output = lengths(random)
            yield Arrival(at - start, prompt, output, tenant=f"client{client}")


def _instants(window: ClientWindow, random: Random, scale: float) -> list[tuple[Instant, int]]:
    mean = window.rate * scale * WINDOW / SECOND
    count = int(mean) + (random.random() < mean - int(mean))
    gaps = [_gap(window, random) for _ in range(count + 1)]
    unit = WINDOW / sum(gaps)
    instants, at = [], 0.0
    for gap in gaps[:-1]:
        at += gap * unit
        instants.append((window.start + int(at), window.client))
    return instants


def _gap(window: ClientWindow, random: Random) -> float:
    """In any unit: only the shape matters. A gap of nothing at all would divide by zero."""
    if window.law == "Gamma":
        gap = random.gammavariate(window.shape, 1.0)
    else:
        gap = random.weibullvariate(1.0, window.shape)
    return max(gap, 1e-12)
