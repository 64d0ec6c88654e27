"""What does the node say of itself: who it is, and how it fares?"""

from __future__ import annotations

from collections.abc import Mapping

from batchyard.v1 import node_service_pb2 as node
from node_agent import clock
from node_agent.config import AgentConfig
from node_agent.core import Agent
from node_agent.engine_care import EngineCare
from node_agent.hardware import GpuFacts, GpuSample, HardwareSample
from node_agent.hardware_monitor import HardwareMonitor


def descriptor(
    config: AgentConfig,
    hostname: str,
    core: Agent,
    engines: Mapping[str, EngineCare],
    hardware: HardwareMonitor,
) -> node.NodeDescriptor:
    """Who the node is, with its engines as they are now."""
    message = node.NodeDescriptor(
        hostname=hostname,
        zone=config.zone,
        pool=config.pool,
        role=config.role,
        labels=config.labels,
        task_types=config.task_types,
        gpus=[_gpu(gpu) for gpu in hardware.gpus],
    )
    for engine_id, care in engines.items():
        engine = message.engines.add()
        engine.CopyFrom(care.descriptor)
        engine.slots = core.engines[engine_id].slots
        if not engine.gpu_indexes:  # nobody named them
            engine.gpu_indexes.extend(hardware.owners.get(engine_id, ()))
    if config.price_per_hour is not None:
        message.price_per_hour.currency = config.price_per_hour.currency
        message.price_per_hour.micros = config.price_per_hour.micros
    return message


def _gpu(facts: GpuFacts) -> node.GpuDescriptor:
    gpu = node.GpuDescriptor(
        index=facts.index,
        uuid=facts.uuid,
        model=facts.model,
        driver_version=facts.driver_version,
        mig_uuid=facts.mig_uuid,
    )
    if facts.memory_bytes is not None:
        gpu.memory_bytes = facts.memory_bytes
    return gpu


def report(
    core: Agent, engines: Mapping[str, EngineCare], sample: HardwareSample | None
) -> node.NodeReport:
    """Load and health at this instant. What is not known is absent."""
    ledger = core.ledger()
    message = node.NodeReport(
        sample_time=clock.timestamp(),
        items_received=ledger.items_received,
        application_utilization=application_utilization(core),
    )
    for engine_id, care in engines.items():
        load = message.engines.add()
        try:
            _fill_load(load, care)
        except (OverflowError, TypeError, ValueError) as fault:  # the others have theirs to tell
            load.Clear()
            load.engine_id = engine_id
            load.message = f"what it says of itself cannot be sent: {fault}"
        load.running_dispatch_ids.extend(ledger.running[engine_id])
        load.waiting_dispatch_ids.extend(ledger.waiting[engine_id])
    if sample is not None:
        _fill_hardware(message, sample)
    return message


def application_utilization(core: Agent) -> float:
    """Inputs held over slots, all engines together: 1 is full, above is look-ahead."""
    slots = sum(engine.slots for engine in core.engines.values())
    held = sum(engine.held_inputs for engine in core.engines.values())
    return held / slots if slots else 1.0


def _fill_load(message: node.EngineLoad, care: EngineCare) -> None:
    load = care.load()
    message.engine_id = care.engine_id
    message.health = load.health
    message.message = load.message
    if load.running is not None:
        message.running = load.running
    if load.waiting is not None:
        message.waiting = load.waiting
    if load.kv_utilization is not None:
        message.kv_utilization = load.kv_utilization
    if load.prefix_cache_hit_ratio is not None:
        message.prefix_cache_hit_ratio = load.prefix_cache_hit_ratio
    if load.preemptions is not None:
        message.preemptions = load.preemptions
    if load.prefill_backlog_tokens is not None:
        message.prefill_backlog_tokens = load.prefill_backlog_tokens
    if load.prompt_tokens_per_s is not None:
        message.prompt_tokens_per_second = load.prompt_tokens_per_s
    if load.output_tokens_per_s is not None:
        message.output_tokens_per_second = load.output_tokens_per_s
    measured = care.service_times.profiles()
    for (
        name,
        state,
    ) in load.model_states.items():  # what was measured of one that is gone is not told
        model = message.models.add(model=name, state=state)
        profile = measured.get(name) or load.profiles.get(name)
        if profile is not None:
            model.profile.CopyFrom(profile)


def _fill_hardware(message: node.NodeReport, sample: HardwareSample) -> None:
    if sample.cpu_utilization is not None:
        message.cpu_utilization = sample.cpu_utilization
    if sample.memory_utilization is not None:
        message.memory_utilization = sample.memory_utilization
    for gpu in sample.gpus:
        _fill_gpu(message.gpus.add(), gpu)


def _fill_gpu(message: node.GpuLoad, gpu: GpuSample) -> None:
    message.index = gpu.index
    message.uuid = gpu.uuid
    for name in GPU_VALUES:
        value = getattr(gpu, name)
        if value is not None:
            setattr(message, name, value)


GPU_VALUES = (
    "utilization",
    "memory_used_bytes",
    "memory_total_bytes",
    "temperature_celsius",
    "power_watts",
    "throttle_reasons",
    "uncorrected_ecc_errors",
    "last_xid",
)
