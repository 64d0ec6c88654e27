"""A Triton server with small models, by its own Python binding; run in an environment of its own.

.cache/engines/triton/bin/python tests/engines/triton_models.py GRPC_PORT HTTP_PORT
"""

import sys
import time

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.model_config.common import QueuePolicy
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig


@batch
def double(x):
    """Twice the input, and how many rows came together."""
    return {"y": x * 2, "rows": np.full((len(x), 1), len(x), np.int32)}


@batch
def slow(x):
    """A tenth of a second a batch."""
    time.sleep(0.1)
    return {"y": x}


def words(requests):
    """Each word of a text as an answer of its own."""
    for request in requests:
        text = request["text_input"].reshape(-1)[0].decode()
        for word in text.split(" "):
            time.sleep(0.02)
            yield [{"text_output": np.array([f"{word} ".encode()], dtype=np.bytes_)}]


def main(grpc_port: int, http_port: int) -> None:
    config = TritonConfig(
        grpc_port=grpc_port, http_port=http_port, allow_metrics=False, log_verbose=0
    )
    batched = ModelConfig(max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=0))
    ordered = ModelConfig(
        max_batch_size=1,
        batcher=DynamicBatcher(
            priority_levels=10,
            default_priority_level=5,
            default_queue_policy=QueuePolicy(max_queue_size=64),
        ),
    )
    vector = Tensor(name="x", dtype=np.float32, shape=(-1,))
    out = Tensor(name="y", dtype=np.float32, shape=(-1,))
    rows = Tensor(name="rows", dtype=np.int32, shape=(1,))
    open_to_all = TritonSecurityConfig(restricted_endpoints=[])  # as Triton itself is
    with Triton(config=config, security_config=open_to_all) as triton:
        triton.bind("double", double, inputs=[vector], outputs=[out, rows], config=batched)
        triton.bind("slow", slow, inputs=[vector], outputs=[out], config=ordered)
        triton.bind(
            "words",
            words,
            inputs=[Tensor(name="text_input", dtype=np.bytes_, shape=(1,))],
            outputs=[Tensor(name="text_output", dtype=np.bytes_, shape=(1,))],
            config=ModelConfig(batching=False, decoupled=True),
        )
        triton.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
