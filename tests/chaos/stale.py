"""A node that speaks of what it does not hold: attempts of earlier terms, and of other nodes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc

from batchyard.errors import BatchyardError
from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from tests.chaos.site import Site

METHOD = "/batchyard.v1.NodeService/Connect"
WAIT_S = 5.0
MOST = 200  # ids that it speaks of


async def speak_of_stale_ids(site: Site, dice: random.Random) -> bool:
    """Send text and results for them; False: the scheduler was away."""
    try:
        async with asyncio.timeout(WAIT_S):
            live = [i async for r in site.admin.requests() for i in r.live_dispatch_ids]
            site.stale_ids.update(live)
            ids = sorted(site.stale_ids)
            await _speak(site.addresses["node"], dice.sample(ids, min(MOST, len(ids))), dice)
    except (BatchyardError, grpc.aio.AioRpcError, TimeoutError):
        return False
    return True


async def _speak(address: str, ids: list[int], dice: random.Random) -> None:
    engine = pb.EngineDescriptor(
        engine_id="e", kind="simulated", slots=1, mode=pb.ENGINE_MODE_CONTINUOUS,
        models=[pb.ModelDescriptor(model="ghost")],
    )  # fmt: skip
    hello = pb.Hello(
        node_id="ghost", boot_id=dice.randbytes(8).hex(), protocol_version=1,
        descriptor=pb.NodeDescriptor(engines=[engine]),
    )  # fmt: skip
    deltas = types_pb2.TokenDeltas(
        ids=ids, offsets=[0] * len(ids), texts=["EVIL"] * len(ids), token_counts=[1] * len(ids)
    )
    results = [
        pb.ItemResult(
            dispatch_id=number, attempt=1, finish_reason=types_pb2.FINISH_REASON_STOP,
            outputs=[{"text": "EVIL", "finish_reason": types_pb2.FINISH_REASON_STOP}],
        )
        for number in ids
    ]  # fmt: skip
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(METHOD)()
        await call.write(pb.ConnectRequest(hello=hello).SerializeToString())
        await call.read()
        said = pb.ConnectRequest(deltas=deltas, results=results)
        await call.write(said.SerializeToString())
        await call.write(pb.ConnectRequest(report=pb.NodeReport()).SerializeToString())
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
