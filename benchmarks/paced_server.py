"""An OpenAI-compatible server that costs almost nothing: a token every so often, for each stream.

python -m benchmarks.paced_server --token-ms 20 --first-ms 50
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from aiohttp import web

from service_kit.parent import watch_stdin

TOKEN = json.dumps({"choices": [{"index": 0, "delta": {"content": "tok "}, "finish_reason": None}]})
LAST = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def _application(first_s: float, token_s: float) -> web.Application:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "benchmark"}]})

    async def chat(request: web.Request) -> web.StreamResponse:
        count = (await request.json())["max_tokens"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        due = asyncio.get_running_loop().time() + first_s
        for _ in range(count):
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await response.write(f"data: {TOKEN}\n\n".encode())
            due += token_s
        await response.write(f"data: {LAST}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", chat)
    return app


async def _serve(first_s: float, token_s: float) -> None:
    runner = web.AppRunner(_application(first_s, token_s))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    gone = asyncio.Event()
    watch_stdin(gone.set)
    await gone.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--first-ms", type=float, default=50.0)
    parser.add_argument("--token-ms", type=float, default=20.0)
    parser.add_argument("--exit-with-stdin", action="store_true")
    options = parser.parse_args()
    asyncio.run(_serve(options.first_ms / 1e3, options.token_ms / 1e3))
