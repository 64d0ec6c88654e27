"""What does it cost to pass one token on, packed with others or alone in its message?

An engine writes 64 outputs at a steady pace. Packed: one client holds all 64 streams on one
Multiplex stream, and what leaves the agent together arrives together. Single: 64 clients hold one
GenerateStream call each, so every delta is a message of its own. Both read with generated stubs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from batchyard.v1 import (
    Call,
    GenerateStreamRequest,
    MultiplexOpen,
    MultiplexRequest,
    MultiplexResponse,
    SchedulerServiceStub,
    TokenDeltas,
)
from benchmarks.bench import (
    FAST,
    FAST_TOKEN_S,
    PACED,
    PACED_TOKEN_S,
    SLOW,
    SLOW_TOKEN_S,
    STREAMS,
    Bench,
    Side,
    cost_and_rates,
)
from benchmarks.echo_load import PACKED, channel, echo_messages, echo_streams
from benchmarks.measured import Measured
from benchmarks.measures.requests import request


@dataclass(slots=True)
class Seen:
    """What came back; it adds up over a measure's rounds."""

    tokens: int = 0
    deltas: int = 0
    messages: int = 0  # that carried deltas

    def add(self, deltas: TokenDeltas) -> None:
        """Count one message."""
        self.messages += 1
        self.deltas += len(deltas.offsets)
        self.tokens += sum(deltas.token_counts)


async def measure_packed(bench: Bench) -> list[Measured]:
    """The lines tokens.*."""
    scheduler, echo = await bench.scheduler(PACED, FAST), await bench.echo()
    seen, fast = Seen(), Seen()
    async with channel(scheduler) as real, channel(echo) as bare:

        async def load(seconds: float) -> int:
            before = seen.tokens
            await _multiplexed(real, PACED, _length(seconds, PACED_TOKEN_S), seen)
            return seen.tokens - before

        async def fast_load(seconds: float) -> int:
            before = fast.tokens
            await _multiplexed(real, FAST, _length(seconds, FAST_TOKEN_S), fast)
            return fast.tokens - before

        async def echo_load(seconds: float) -> int:
            return PACKED * await echo_messages(bare, _packed_deltas(), width=2, seconds=seconds)

        paced = Side(scheduler, load)
        subject, limit = await bench.alternate(paced, Side(echo, echo_load))
        outrun = Side(scheduler, fast_load)
        flooded = [await outrun.sample(bench.round_s) for _ in range(bench.rounds)]
    lines = cost_and_rates("tokens", subject, limit)
    lines[0].detail |= _shape(seen)
    busy = sum(s.cpu_s for s in flooded) / sum(s.wall_s for s in flooded)
    detail = {"scheduler_busy": round(busy, 3), **_shape(fast)}
    return [*lines, Measured("tokens.rate", [s.rate for s in flooded], detail=detail)]


async def measure_single(bench: Bench) -> list[Measured]:
    """The lines deltas.*."""
    scheduler, echo = await bench.scheduler(SLOW), await bench.echo()
    seen = Seen()
    async with channel(scheduler) as real, channel(echo) as bare:

        async def load(seconds: float) -> int:
            before = seen.messages
            await _single(real, SLOW, _length(seconds, SLOW_TOKEN_S), seen)
            return seen.messages - before

        async def echo_load(seconds: float) -> int:
            count = _length(seconds, SLOW_TOKEN_S)
            return await echo_streams(bare, _one_delta(), streams=STREAMS, count=count)

        subject, limit = await bench.alternate(Side(scheduler, load), Side(echo, echo_load))
    lines = cost_and_rates("deltas", subject, limit)
    lines[0].detail |= _shape(seen)
    return lines


def _length(seconds: float, token_s: float) -> int:
    """Tokens of an output that takes so long."""
    return max(8, round(seconds / token_s))


def _shape(seen: Seen) -> dict[str, float | int | str]:
    return {
        "deltas_per_message": round(seen.deltas / seen.messages, 1),
        "tokens_per_delta": round(seen.tokens / seen.deltas, 2),
    }


async def _multiplexed(opened: grpc.aio.Channel, model: str, length: int, seen: Seen) -> None:
    """64 streamed requests on one Multiplex stream, to their end."""
    stub: Any = SchedulerServiceStub(opened)  # type: ignore[no-untyped-call]
    stream = stub.Multiplex()
    asked = request(model, length)
    calls = [Call(call_id=i + 1, request=asked, stream=True) for i in range(STREAMS)]
    await stream.write(MultiplexRequest(open=MultiplexOpen(), calls=calls, done=True))
    await stream.done_writing()
    message: MultiplexResponse
    async for message in stream:
        if message.HasField("deltas"):
            seen.add(message.deltas)
        for result in message.results:
            if result.result.HasField("error"):
                raise RuntimeError(result.result.error.message)


async def _single(opened: grpc.aio.Channel, model: str, length: int, seen: Seen) -> None:
    """64 GenerateStream calls, to their end."""
    stub: Any = SchedulerServiceStub(opened)  # type: ignore[no-untyped-call]
    asked = GenerateStreamRequest(request=request(model, length))

    async def one() -> None:
        async for message in stub.GenerateStream(asked):
            if message.HasField("deltas"):
                seen.add(message.deltas)

    await asyncio.gather(*(one() for _ in range(STREAMS)))


def _packed_deltas() -> bytes:
    """A message of 64 deltas of one token each."""
    deltas = TokenDeltas(
        ids=range(1, PACKED + 1),
        offsets=[1000] * PACKED,
        texts=["100:0a1b2c "] * PACKED,
        token_counts=[1] * PACKED,
    )
    return MultiplexResponse(deltas=deltas).SerializeToString()


def _one_delta() -> bytes:
    deltas = TokenDeltas(offsets=[1000], texts=["100:0a1b2c "], token_counts=[1])
    return MultiplexResponse(deltas=deltas).SerializeToString()
