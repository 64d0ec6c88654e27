"""What does Triton keep of its throughput behind scheduler and agent? Interleaved, in one session.

A server runs already, with the models of `tests/engines/triton_models.py`, on a core that whoever
started it chose; load, scheduler and agent share the first one. Two models:

    words      a decoupled text: 50 words, one every 20 ms
    double     a tensor, doubled: it costs the server next to nothing, so all else shows

    python -m benchmarks.triton_overhead --address 127.0.0.1:8001
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from batchyard import AsyncClient
from batchyard.v1 import InferenceRequest
from benchmarks import machine
from benchmarks.behind import behind_scheduler
from benchmarks.processes import Child, Cores, pin
from node_agent.engines.oip_messages import MESSAGES, METHODS, SERVICE

WORDS = 50
TEXT = " ".join(["word"] * WORDS)
NUMBER = struct.pack("<f", 1.0)
PLAN = {  # streams, each so many times
    "words": ((8, 2), (64, 2)),
    "double": ((8, 100), (64, 30)),
}
HEAD = (
    "| model | streams | answers/s direct | scheduled | kept | CPU per answer: scheduler, agent |\n"
    "|---|---|---|---|---|---|\n"
)
Way = Callable[[str], Awaitable[None]]


class Direct:
    """The server itself, over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._infer = self._method(channel.unary_unary, "ModelInfer")
        self._stream = self._method(channel.stream_stream, "ModelStreamInfer")

    async def ask(self, model: str) -> None:
        """One answer, whole."""
        request = MESSAGES["InferRequest"](model_name=model)
        if model != "words":
            request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
            request.raw_input_contents.append(NUMBER)
            await self._infer(request)
            return
        request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        request.raw_input_contents.append(struct.pack("<I", len(TEXT)) + TEXT.encode())
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        words = 0
        async for message in self._stream(iter([request])):
            words += len(message.infer_response.outputs)
            if message.infer_response.parameters["triton_final_response"].bool_param:
                break
        assert words == WORDS, words

    @staticmethod
    def _method(kind: Any, name: str) -> Any:
        sent, received = METHODS[name]
        return kind(
            SERVICE + name,
            request_serializer=MESSAGES[sent].SerializeToString,
            response_deserializer=MESSAGES[received].FromString,
        )


class Scheduled:
    """The same, through scheduler and agent."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def ask(self, model: str) -> None:
        """One answer, whole."""
        if model != "words":
            request = InferenceRequest(model=model)
            request.tensors.tensors.add(name="x", datatype="FP32", shape=[1, 1], data=NUMBER)
            await self._client.generate(request=request)
            return
        stream = self._client.stream(TEXT, model=model)
        async with stream:
            async for _ in stream:
                pass
        assert stream.text.count("word") == WORDS, stream.text


async def rate(ask: Way, model: str, streams: int, each: int) -> float:
    """Answers per second of so many callers, each asking so many times in a row."""

    async def chain() -> None:
        for _ in range(each):
            await ask(model)

    began = time.perf_counter()
    await asyncio.gather(*(chain() for _ in range(streams)))
    return streams * each / (time.perf_counter() - began)


async def main(options: argparse.Namespace) -> None:
    """Measure, and print a table."""
    about, cores = machine.describe(), Cores.divide()
    pin(os.getpid(), cores.subject)
    words = ("--engine", "oip", "--engine-option", f"address={options.address}")
    async with (
        behind_scheduler(*words, models=PLAN, cores=cores.subject) as (client, *children),
        grpc.aio.insecure_channel(options.address) as channel,
    ):
        _say(
            f"{about}, commit {machine.commit()}; all but Triton on {sorted(cores.subject)}\n{HEAD}"
        )
        for model in options.models:
            for streams, each in PLAN[model]:
                row = await _row(Direct(channel), Scheduled(client), children, model,
                                 streams, each, options.rounds)  # fmt: skip
                _say(f"| {model} | {streams} | {row}\n")


async def _row(
    direct: Direct, scheduled: Scheduled, children: Sequence[Child], model: str,
    streams: int, each: int, rounds: int,
) -> str:  # fmt: skip
    rates: dict[Direct | Scheduled, list[float]] = {direct: [], scheduled: []}
    cpu_s = [0.0, 0.0]
    for way in rates:
        await rate(way.ask, model, streams, 1)
    for turn in range(rounds):
        for way in (direct, scheduled) if turn % 2 else (scheduled, direct):
            before = [process.cpu_s() for process in children]
            rates[way].append(await rate(way.ask, model, streams, each))
            if way is scheduled:
                for i, process in enumerate(children):
                    cpu_s[i] += process.cpu_s() - before[i]
    kept = statistics.median(b / a for a, b in zip(rates[direct], rates[scheduled], strict=True))
    answers = streams * each * rounds
    costs = ", ".join(f"{spent / answers * 1e6:.0f} us" for spent in cpu_s)
    medians = " | ".join(f"{statistics.median(found):.1f}" for found in rates.values())
    return f"{medians} | {kept:.1%} | {costs} |"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="gRPC port of a Triton that runs")
    parser.add_argument("--models", nargs="+", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--rounds", type=int, default=10)
    asyncio.run(main(parser.parse_args()))
