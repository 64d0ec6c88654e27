"""What do metrics say of GPUs? The same at the scheduler and at the agent, from a node's report.

Names as OpenTelemetry's conventions for hardware have them; `hw.id` is the GPU's UUID, or its index
where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from batchyard.v1 import node_service_pb2
from service_kit.metrics import Family, Kind

_LABELS: Final = ("node", "hw.id")
# Field of a GpuLoad, metric, unit, help.
_GAUGES: Final = (
    ("utilization", "hw.gpu.utilization", "1", "Busy share of a GPU"),
    ("memory_used_bytes", "hw.gpu.memory.usage", "By", "Memory in use"),
    ("memory_total_bytes", "hw.gpu.memory.limit", "By", "Memory that there is"),
    ("temperature_celsius", "hw.temperature", "Cel", "Of the GPU"),
    ("power_watts", "hw.power", "W", "That the GPU draws"),
)


def gpu_families(nodes: Iterable[tuple[str, node_service_pb2.NodeReport]]) -> list[Family]:
    """Of these nodes' GPUs. What a node does not know has no series."""
    gauges = [Family(name, Kind.GAUGE, text, unit, _LABELS) for _, name, unit, text in _GAUGES]
    errors = Family(
        "hw.errors",
        Kind.COUNTER,
        "Memory errors that were not corrected",
        "{error}",
        (*_LABELS, "error.type"),
    )
    for node, report in nodes:
        for load in report.gpus:
            gpu = load.uuid or str(load.index)
            for family, (field, *_) in zip(gauges, _GAUGES, strict=True):
                if load.HasField(field):
                    family.add(getattr(load, field), node, gpu)
            if load.HasField("uncorrected_ecc_errors"):
                errors.add(load.uncorrected_ecc_errors, node, gpu, "uncorrected")
    return [*gauges, errors]
