"""Only the generated stubs, as any gRPC language could do it. Run `batchyard dev` first."""

import os

import grpc

from batchyard.v1 import (
    GenerateStreamRequest,
    GenerationParams,
    InferenceRequest,
    SchedulerServiceStub,
    TextInput,
)

address = os.environ.get("BATCHYARD_ADDRESS", "127.0.0.1:7611")
with grpc.insecure_channel(address) as channel:
    request = InferenceRequest(
        task_type="summarization",
        text=TextInput(prompt="Summarise: the sky is blue because of how air scatters light."),
        params=GenerationParams(max_tokens=24),
    )
    stub = SchedulerServiceStub(channel)
    for answer in stub.GenerateStream(GenerateStreamRequest(request=request), timeout=60):
        print("".join(answer.deltas.texts), end="", flush=True)
    print(f"\n{answer.result.model} on {answer.result.node_id}")
