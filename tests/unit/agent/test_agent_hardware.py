"""Hardware: cgroup limits, GPUs by a library that may refuse anything, and no GPU at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from node_agent import hardware
from node_agent.hardware import FixedProbe, GpuFacts, HardwareSample, HostProbe
from node_agent.hardware_monitor import HardwareMonitor
from node_agent.nvml import NvmlProbe, open_nvml

GIB = 1 << 30


def cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_the_quota_of_the_container_is_what_counts(tmp_path: Path) -> None:
    cgroup(tmp_path, cpu__max="50000 100000\n", memory__max=str(GIB))
    assert hardware.cpu_limit(tmp_path) == 0.5
    assert hardware.memory_limit(tmp_path) == GIB


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    cgroup(tmp_path, cpu__max="max 100000\n", memory__max="max\n")
    assert hardware.cpu_limit(tmp_path) >= 1
    assert hardware.memory_limit(tmp_path) is None
    assert hardware.cpu_limit(tmp_path / "missing") >= 1


def test_utilization_is_of_the_containers_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    monkeypatch.setattr(hardware.clock, "now_ns", lambda: now[0])
    cgroup(tmp_path, cpu__max="50000 100000\n", cpu__stat="usage_usec 1000000\n")
    limits = {"memory__max": str(GIB), "memory__current": str(GIB // 2)}
    cgroup(tmp_path, **limits, memory__stat=f"anon 1\ninactive_file {GIB // 4}\n")
    probe = HostProbe(cgroup=tmp_path)
    first = probe.sample()
    assert first.cpu_utilization is None  # nothing to compare with yet
    assert first.memory_utilization == 0.25  # half, of which half is page cache
    now[0] = 1_000_000_000
    cgroup(tmp_path, cpu__stat="usage_usec 1250000\n")
    assert probe.sample().cpu_utilization == 0.5  # a quarter of a second of half a CPU


def test_this_host_has_plausible_figures() -> None:
    probe = HostProbe()
    probe.sample()
    sample = probe.sample()
    assert sample.memory_utilization is not None
    assert 0 < sample.memory_utilization <= 1
    assert sample.cpu_utilization is None or 0 <= sample.cpu_utilization <= 1
    assert probe.gpus() == []
    assert psutil.virtual_memory().total > 0


class FakeNvmlError(Exception):
    """As the library raises."""


def says(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def fake_nvml(**overrides: Any) -> Any:
    """A library with one GPU that answers everything."""
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda i: f"handle {i}",
        "nvmlDeviceGetUUID": says(b"GPU-1"),
        "nvmlDeviceGetName": says("A GPU"),
        "nvmlDeviceGetMemoryInfo": says(SimpleNamespace(used=2 * GIB, total=8 * GIB)),
        "nvmlDeviceGetUtilizationRates": says(SimpleNamespace(gpu=40)),
        "nvmlDeviceGetTemperature": says(61),
        "nvmlDeviceGetPowerUsage": says(250_500),
        "nvmlDeviceGetCurrentClocksEventReasons": says(4),
        "nvmlDeviceGetTotalEccErrors": says(0),
    }
    constants = {
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
    }
    return SimpleNamespace(NVMLError=FakeNvmlError, **{**answers, **constants, **overrides})


def refuses(*_: Any) -> Any:
    raise FakeNvmlError("not supported")


def test_a_gpu_is_read_whole() -> None:
    probe = NvmlProbe(fake_nvml())
    (facts,) = probe.gpus()
    assert (facts.index, facts.uuid, facts.model) == (0, "GPU-1", "A GPU")
    assert (facts.memory_bytes, facts.driver_version) == (8 * GIB, "570.1")
    (sample,) = probe.samples()
    assert sample.utilization == 0.4
    assert sample.power_watts == 250.5
    assert sample.throttle_reasons == 4
    assert sample.uncorrected_ecc_errors == 0  # known to be none, which differs from unknown


def test_a_value_that_the_driver_refuses_is_unknown_and_costs_no_other() -> None:
    library = fake_nvml(
        nvmlDeviceGetPowerUsage=refuses,
        nvmlDeviceGetTotalEccErrors=refuses,
        nvmlDeviceGetUtilizationRates=refuses,
    )
    (sample,) = NvmlProbe(library).samples()
    assert sample.power_watts is None
    assert sample.uncorrected_ecc_errors is None
    assert sample.utilization is None
    assert sample.temperature_celsius == 61


def test_the_older_name_of_throttle_reasons_still_answers() -> None:
    library = fake_nvml(nvmlDeviceGetCurrentClocksThrottleReasons=says(8))
    del library.nvmlDeviceGetCurrentClocksEventReasons
    assert NvmlProbe(library).samples()[0].throttle_reasons == 8


def test_no_driver_and_no_binding_mean_no_gpus_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=refuses))
    assert open_nvml() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml() is None
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert open_nvml() is not None


def test_the_monitor_keeps_the_last_sample_and_tells_of_gpus() -> None:
    told = threading.Event()
    sample = HardwareSample(cpu_utilization=0.5)
    monitor = HardwareMonitor(
        lambda: FixedProbe(sample, [GpuFacts(index=0)]), told.set, interval_s=0.01
    )
    monitor.start()
    assert told.wait(5)
    monitor.stop()
    assert monitor.sample == sample
    assert monitor.gpus == [GpuFacts(index=0)]


def test_a_probe_that_raises_leaves_the_agent_without_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> FixedProbe:
        raise RuntimeError("no such bus")

    monitor = HardwareMonitor(broken, lambda: None)
    monitor.start()
    monitor._thread.join(5)
    assert monitor.sample is None
    assert "not watched" in caplog.text
