"""What GPUs are here, and how do they fare, by NVIDIA's own library?

No driver, no library or no permission: no GPUs, and no error. Each value is asked for by itself,
for boards and MIG instances answer different questions.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from node_agent.hardware import GpuFacts, GpuSample

log = logging.getLogger("node_agent.hardware")

T = TypeVar("T")
EVENTS_MAX = 1000  # of one look


class NvmlProbe:
    """GPUs by NVML. `open` it in the thread that will use it."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._xids = XidWatch(library)

    def gpus(self) -> list[GpuFacts]:
        """All GPUs that this process may see; of one that is divided (MIG), its instances."""
        driver = _text(self._ask(self._nvml.nvmlSystemGetDriverVersion))
        found: list[GpuFacts] = []
        for index, handle in self._handles():
            self._xids.add(index, handle)
            whole = self._facts(index, handle, driver)
            parts = [self._part(whole, part) for part in self._instances(handle)]
            found += parts or [whole]
        return found

    def samples(self) -> list[GpuSample]:
        """How each GPU fares now; one that is divided as a whole."""
        self._xids.look()
        return [self._sample(index, handle) for index, handle in self._handles()]

    def _instances(self, handle: Any) -> list[Any]:
        """Handles of the MIG instances of a GPU; none: it is not divided."""
        nvml = self._nvml
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        asked = (
            self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i) for i in range(most)
        )
        return [part for part in asked if part is not None]

    def _part(self, whole: GpuFacts, handle: Any) -> GpuFacts:
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return replace(
            whole,
            model=_text(self._ask(self._nvml.nvmlDeviceGetName, handle)) or whole.model,
            mig_uuid=_text(self._ask(self._nvml.nvmlDeviceGetUUID, handle)),
            memory_bytes=None if memory is None else int(memory.total),
        )

    def _handles(self) -> list[tuple[int, Any]]:
        count = self._ask(self._nvml.nvmlDeviceGetCount) or 0
        pairs = ((i, self._ask(self._nvml.nvmlDeviceGetHandleByIndex, i)) for i in range(count))
        return [(index, handle) for index, handle in pairs if handle is not None]

    def _facts(self, index: int, handle: Any, driver: str) -> GpuFacts:
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return GpuFacts(
            index=index,
            uuid=_text(self._ask(self._nvml.nvmlDeviceGetUUID, handle)),
            model=_text(self._ask(self._nvml.nvmlDeviceGetName, handle)),
            memory_bytes=None if memory is None else int(memory.total),
            driver_version=driver,
        )

    def _sample(self, index: int, handle: Any) -> GpuSample:
        nvml, ask = self._nvml, self._ask
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        celsius = ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        milliwatts = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return GpuSample(
            index=index,
            uuid=_text(ask(nvml.nvmlDeviceGetUUID, handle)),
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_celsius=None if celsius is None else float(celsius),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            throttle_reasons=self._throttle_reasons(handle),
            uncorrected_ecc_errors=ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            last_xid=self._xids.last.get(index),
            pids=None if processes is None else frozenset(int(p.pid) for p in processes),
        )

    def _throttle_reasons(self, handle: Any) -> int | None:
        # Renamed in driver 535; the old name still answers where the new one is missing.
        for name in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            function = getattr(self._nvml, name, None)
            reasons = self._ask(function, handle) if function is not None else None
            if reasons is not None:
                return int(reasons)
        return None

    def _ask(self, function: Callable[..., T], *arguments: Any) -> T | None:
        return ask(self._nvml, function, *arguments)


class XidWatch:
    """The last critical error (XID) of each GPU, by index, since the watch began.

    NVML tells of such errors as events, only of those that come after one asked for them.
    """

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._events: Any = None
        self._indexes: dict[str, int] = {}  # by uuid
        self.last: dict[int, int] = {}

    def add(self, index: int, handle: Any) -> None:
        """Ask for the errors of a GPU, once."""
        nvml = self._nvml
        uuid = _text(ask(nvml, nvml.nvmlDeviceGetUUID, handle))
        kind = nvml.nvmlEventTypeXidCriticalError
        told = ask(nvml, nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if not uuid or uuid in self._indexes or not told & kind:
            return
        if self._events is None:
            self._events = ask(nvml, nvml.nvmlEventSetCreate)
        if self._events is not None:
            # It answers nothing, also where it is done: what is refused raises, and is not watched.
            ask(nvml, nvml.nvmlDeviceRegisterEvents, handle, kind, self._events)
            self._indexes[uuid] = index

    def look(self) -> None:
        """Take in what came since the last look; waits for nothing."""
        if self._events is None:
            return
        nvml = self._nvml
        for _ in range(EVENTS_MAX):
            event = ask(nvml, nvml.nvmlEventSetWait_v2, self._events, 0)  # None: no more
            if event is None:
                return
            uuid = _text(ask(nvml, nvml.nvmlDeviceGetUUID, event.device))
            if uuid in self._indexes and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self.last[self._indexes[uuid]] = int(event.eventData)


def ask(library: Any, function: Callable[..., T], *arguments: Any) -> T | None:
    """What the library answers; None: it does not know, or refuses."""
    try:
        return function(*arguments)
    except (library.NVMLError, UnicodeDecodeError):
        return None


def open_nvml() -> NvmlProbe | None:
    """A probe, or None where there is no driver or no binding to it."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError as fault:
        log.debug("no GPUs by NVML: %s", fault, extra={"event": "nvml_absent"})
        return None
    return NvmlProbe(library)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
