"""The limit: what does a Python gRPC server cost that does nothing but answer?

Three methods on raw bytes, no parsing: Unary and Bidi send back what came, Stream writes the rest
of its request as often as its first four bytes say. `python -m benchmarks.echo_server` prints the
address as JSON and serves until standard input closes; with the folder that `batchyard certs init`
made as argument, it encrypts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from service_kit.event_loop import loop_factory
from service_kit.parent import watch_stdin

SERVICE = "benchmarks.Echo"
UNARY, BIDI, STREAM = (f"/{SERVICE}/{method}" for method in ("Unary", "Bidi", "Stream"))
COUNT_BYTES = 4


async def _unary(request: bytes, context: Any) -> bytes:
    del context
    return request


async def _bidi(requests: AsyncIterator[bytes], context: Any) -> None:
    async for request in requests:
        await context.write(request)


async def _stream(request: bytes, context: Any) -> None:
    message = request[COUNT_BYTES:]
    for _ in range(int.from_bytes(request[:COUNT_BYTES], "big")):
        await context.write(message)


async def _serve(folder: str) -> None:
    stop = asyncio.Event()
    watch_stdin(stop.set)
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", 1_000)])
    handlers: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(_unary),
        "Bidi": grpc.stream_stream_rpc_method_handler(_bidi),
        "Stream": grpc.unary_stream_rpc_method_handler(_stream),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    if folder:
        key, chain = ((Path(folder) / f"scheduler.{kind}").read_bytes() for kind in ("key", "pem"))
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # as the scheduler does
    print(json.dumps({"event": "ready", "client": f"127.0.0.1:{port}"}), flush=True)
    await stop.wait()
    await server.stop(0.5)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(next((word for word in sys.argv[1:] if word[0] != "-"), "")))
