"""How busy was the machine at the last look?

A thread looks once a second: NVML and /proc may block, and must not stop the loop. It is a daemon,
so a driver that hangs does not keep the agent from exiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from node_agent.gpu_owners import Place, find_owners
from node_agent.hardware import GpuFacts, HardwareProbe, HardwareSample

log = logging.getLogger("node_agent.hardware")

INTERVAL_S = 1.0
OWNERS_S = 5.0  # between two looks at who computes where, unless an engine moved


class HardwareMonitor:
    """The latest sample of a probe."""

    def __init__(
        self,
        make_probe: Callable[[], HardwareProbe],
        on_gpus: Callable[[], None],
        interval_s: float = INTERVAL_S,
        places: Callable[[], Mapping[str, Place]] = dict,
    ) -> None:
        """`make_probe`, `places` (where engines run, by engine id) and `on_gpus` (GPUs were found,
        or owners of them) are called in the monitor's thread.
        """
        self.gpus: list[GpuFacts] = []
        self.sample: HardwareSample | None = None
        self.owners: dict[str, tuple[int, ...]] = {}  # indexes of GPUs, by engine id
        self._places = places
        self._owners_at = float("-inf")
        self._seen: dict[str, Place] = {}  # where engines ran at the last look for owners
        self._make_probe = make_probe
        self._on_gpus = on_gpus
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hardware", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a look that hangs is left behind."""
        self._stop.set()
        self._thread.join(0.2)

    def _run(self) -> None:
        try:
            probe = self._make_probe()
            self.gpus = probe.gpus()
            if self.gpus and not self._stop.is_set():
                self._on_gpus()
            while not self._stop.is_set():
                self.sample = probe.sample()
                self._find_owners(self.sample)
                self._stop.wait(self._interval_s)
        except Exception:  # hardware figures are a service, not a duty: the agent works without
            self.sample = None
            log.exception("hardware is not watched any more", extra={"event": "hardware_failed"})

    def _find_owners(self, sample: HardwareSample) -> None:
        """Engines and their GPUs; what was found stays, also while an engine is away."""
        now, places = time.monotonic(), dict(self._places())
        moved = places != self._seen
        if not sample.gpus or (not moved and now - self._owners_at < OWNERS_S):
            return
        self._owners_at, self._seen = now, places
        owners = {**self.owners, **find_owners(places, sample.gpus)}
        if owners != self.owners:
            self.owners = owners
            self._on_gpus()
