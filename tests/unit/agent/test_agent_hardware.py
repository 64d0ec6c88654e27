"""Hardware: cgroup limits, GPUs by a library that may refuse anything, and no GPU at all."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from node_agent import hardware, nvml
from node_agent.gpu_owners import Place, find_owners
from node_agent.hardware import FixedProbe, GpuFacts, GpuSample, HardwareSample, HostProbe
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


def refuses(*_: Any) -> Any:
    raise FakeNvmlError("not supported")


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
        "nvmlDeviceGetComputeRunningProcesses": says([SimpleNamespace(pid=17)]),
        "nvmlDeviceGetMigMode": refuses,
        "nvmlDeviceGetSupportedEventTypes": says(8 | 1),
        "nvmlEventSetCreate": says("events"),
        "nvmlDeviceRegisterEvents": says(None),
        "nvmlEventSetWait_v2": refuses,
    }
    constants = {
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_DEVICE_MIG_ENABLE": 1,
        "nvmlEventTypeXidCriticalError": 8,
    }
    return SimpleNamespace(NVMLError=FakeNvmlError, **{**answers, **constants, **overrides})


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
    assert sample.pids == {17}
    assert sample.last_xid is None  # none was seen, which is not that there was none


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


def test_critical_errors_are_kept_by_gpu() -> None:
    """Events come in a queue; others than XIDs, and of GPUs that are not watched, are passed by."""
    queue: list[Any] = []

    def wait(_events: Any, timeout_ms: int) -> Any:
        assert timeout_ms == 0
        return queue.pop(0) if queue else refuses()

    uuids = {"handle 0": "GPU-0", "handle 1": "GPU-1", "other": "GPU-9"}
    library = fake_nvml(
        nvmlDeviceGetCount=says(2), nvmlDeviceGetUUID=uuids.get, nvmlEventSetWait_v2=wait
    )
    probe = NvmlProbe(library)
    probe.gpus()
    assert [sample.last_xid for sample in probe.samples()] == [None, None]
    for device, kind, data in (("handle 1", 8, 48), ("handle 1", 8, 79), ("handle 0", 1, 5)):
        queue.append(SimpleNamespace(device=device, eventType=kind, eventData=data))
    queue.append(SimpleNamespace(device="other", eventType=8, eventData=13))
    assert [sample.last_xid for sample in probe.samples()] == [None, 79]
    assert [sample.last_xid for sample in probe.samples()] == [None, 79]  # the last one stays


def test_divided_gpu_is_shown_by_its_instances() -> None:
    def uuid(handle: str) -> str:
        return f"MIG-{handle}" if handle.startswith("part") else "GPU-1"

    def part(_handle: str, place: int) -> str:
        return f"part {place}" if place in (0, 2) else refuses()

    def memory(handle: str) -> Any:
        return SimpleNamespace(used=0, total=(1 if handle.startswith("part") else 8) * GIB)

    library = fake_nvml(
        nvmlDeviceGetMigMode=says([1, 1]),
        nvmlDeviceGetMaxMigDeviceCount=says(7),
        nvmlDeviceGetMigDeviceHandleByIndex=part,
        nvmlDeviceGetUUID=uuid,
        nvmlDeviceGetMemoryInfo=memory,
    )
    first, second = NvmlProbe(library).gpus()
    assert (first.mig_uuid, second.mig_uuid) == ("MIG-part 0", "MIG-part 2")
    assert {(gpu.index, gpu.uuid, gpu.memory_bytes) for gpu in (first, second)} == {
        (0, "GPU-1", GIB)
    }
    (sample,) = NvmlProbe(library).samples()
    assert sample.memory_total_bytes == 8 * GIB


def test_every_name_that_is_used_is_the_bindings_own() -> None:
    """The double above must not invent functions."""
    binding = pytest.importorskip("pynvml")
    used = set(re.findall(r"nvml\.(nvml\w+|NVML\w+)", Path(nvml.__file__).read_text()))
    assert {name for name in used if not hasattr(binding, name)} == set()
    assert used <= set(vars(fake_nvml())) | {
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    }


def test_gpus_belong_to_the_engine_whose_process_computes_there() -> None:
    """By children, or by who listens at an address here; what cannot be told is left out."""
    me = os.getpid()
    gpus = [
        GpuSample(index=0, pids=frozenset({me})),
        GpuSample(index=1, pids=frozenset({me, 1})),
        GpuSample(index=2, pids=frozenset()),
        GpuSample(index=3),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        places = {
            "child": Place(pids=(me,)),
            "attached": Place(address=address),
            "elsewhere": Place(address="http://gpu-7.example.org:8000"),
            "gone": Place(pids=(2**22 + 1,)),
            "inside": Place(),
        }
        assert find_owners(places, gpus) == {"child": (0, 1), "attached": (0, 1)}
    assert find_owners({"child": Place(pids=(me,))}, [GpuSample(index=3)]) == {}


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
