"""What does a simulated engine say of itself?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchyard.v1 import node_service_pb2
from node_agent.engines.simulated_options import SimulatedModel, SimulatedOptions

_MODES = {
    "static": node_service_pb2.ENGINE_MODE_STATIC,
    "continuous": node_service_pb2.ENGINE_MODE_CONTINUOUS,
}


def describe(
    engine_id: str, options: SimulatedOptions, models: Iterable[SimulatedModel]
) -> node_service_pb2.EngineDescriptor:
    """Return the engine's identity, mode, slots and the models that it has now."""
    described = [
        node_service_pb2.ModelDescriptor(
            model=model.name,
            base_model=model.base_model,
            context_length=model.context_length,
            streaming=True,
            resumable=True,
            task_types=model.task_types,
        )
        for model in models
    ]
    return node_service_pb2.EngineDescriptor(
        engine_id=engine_id,
        kind="simulated",
        mode=_MODES[options.mode],
        slots=options.slots,
        max_batch_size=options.batch_limit,
        look_ahead=options.look_ahead,
        kv_capacity_tokens=options.kv_capacity_tokens,
        models=described,
    )


def profile(options: SimulatedOptions) -> node_service_pb2.ServiceProfile | None:
    """Return its speed as configured; None where its times depend on the output, or are none.

    Static: the time of a batch, so its output length must be known. Continuous: per output token.
    """
    profile = node_service_pb2.ServiceProfile()
    if options.mode == "continuous":
        if options.latency_per_token:
            point = profile.points.add(concurrency=1)
            point.time.FromNanoseconds(round(options.latency_per_token * 1e9))
        return profile if profile.points else None
    if options.instant or (options.latency_per_token and not options.output_tokens):
        return None
    fixed_s = options.latency + options.latency_per_token * options.output_tokens
    for inputs in _doubling(options.batch_limit):
        point = profile.points.add(concurrency=inputs)
        point.time.FromNanoseconds(round((fixed_s + options.latency_per_item * inputs) * 1e9))
    return profile


def _doubling(last: int) -> Iterator[int]:
    value = 1
    while value < last:
        yield value
        value *= 2
    yield last
