"""What GPUs are here, and how do they fare, by NVIDIA's own library?

No driver, no library or no permission: no GPUs, and no error. Each value is asked for by itself,
for boards and MIG instances answer different questions.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from node_agent.hardware import GpuFacts, GpuSample

log = logging.getLogger("node_agent.hardware")

T = TypeVar("T")


class NvmlProbe:
    """GPUs by NVML. `open` it in the thread that will use it."""

    def __init__(self, library: Any) -> None:
        self._nvml = library

    def gpus(self) -> list[GpuFacts]:
        """All GPUs that this process may see."""
        driver = _text(self._ask(self._nvml.nvmlSystemGetDriverVersion))
        return [self._facts(index, handle, driver) for index, handle in self._handles()]

    def samples(self) -> list[GpuSample]:
        """How each of them fares now."""
        return [self._sample(index, handle) for index, handle in self._handles()]

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
        try:
            return function(*arguments)
        except (self._nvml.NVMLError, UnicodeDecodeError):
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
