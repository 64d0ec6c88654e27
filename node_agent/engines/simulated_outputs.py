"""What does the simulated engine answer where nothing is generated? Vectors, or what came in."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from hashlib import blake2b

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.hash64 import unit_interval

_COMPLETE = types_pb2.FINISH_REASON_COMPLETE


def embedding_outputs(
    texts: Sequence[str], dimensions: int, seed: int
) -> list[inference_pb2.Output]:
    """Return one unit vector per text: equal texts have equal ones, whatever their batch."""
    return [
        inference_pb2.Output(
            index=index, embedding=_vector(text, dimensions, seed), finish_reason=_COMPLETE
        )
        for index, text in enumerate(texts)
    ]


def tensor_outputs(tensors: inference_pb2.TensorInput) -> list[inference_pb2.Output]:
    """Return the tensors that were asked for, as they came."""
    wanted = set(tensors.output_names)
    chosen = [tensor for tensor in tensors.tensors if not wanted or tensor.name in wanted]
    return [inference_pb2.Output(tensors=chosen, finish_reason=_COMPLETE)]


def raw_outputs(raw: inference_pb2.RawInput) -> list[inference_pb2.Output]:
    """Return the body as it came."""
    body = inference_pb2.RawOutput(content_type=raw.content_type, data=raw.data)
    return [inference_pb2.Output(raw=body, finish_reason=_COMPLETE)]


def _vector(text: str, dimensions: int, seed: int) -> list[float]:
    (key,) = struct.unpack("<q", blake2b(text.encode(), digest_size=8).digest())
    values = [2.0 * unit_interval(seed, key, i) - 1.0 for i in range(dimensions)]
    length = math.sqrt(sum(v * v for v in values)) or 1.0
    return [v / length for v in values]
