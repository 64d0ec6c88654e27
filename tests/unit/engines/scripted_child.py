"""A child in llama.cpp's place, for what the true one does too rarely to be tested with it.

It is ready at once and answers 503 to its first two requests; its stream comes a byte at a time;
prompts ask it for an HTTP status ("503") or for an end in the middle of the stream ("break").
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

from aiohttp import web

TEXT = "长城 🙂"


class Script:
    """Its answers."""

    def __init__(self) -> None:
        self.loading = 2

    async def nothing(self, _: web.Request) -> web.Response:
        return web.json_response([])

    async def completions(self, _: web.Request) -> web.Response:
        self.loading -= 1
        if self.loading >= 0:
            return web.json_response({"error": {"message": "Loading model"}}, status=503)
        return web.json_response({})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if self.loading > 0:
            return web.json_response({"error": {"message": "Loading model"}}, status=503)
        prompt = (await request.json())["messages"][0]["content"]
        if prompt.isdigit():
            return web.json_response({"error": {"message": "told to"}}, status=int(prompt))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        parts = [json.dumps(event(c, None), ensure_ascii=False) for c in TEXT]
        if prompt != "break":
            parts += [json.dumps(event(None, "stop")), "[DONE]"]
        for byte in "".join(f"data: {part}\n\n" for part in parts).encode():
            await response.write(bytes([byte]))
        return response


def event(text: str | None, finish: str | None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def end_with_the_parent() -> None:
    while sys.stdin.readline():
        pass
    os._exit(0)


async def main() -> None:
    sys.stdin.readline()
    script = Script()
    app = web.Application()
    app.add_routes([web.get(path, script.nothing) for path in ("/health", "/slots", "/metrics")])
    app.router.add_post("/v1/completions", script.completions)
    app.router.add_post("/v1/chat/completions", script.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    print(json.dumps({"address": f"http://{host}:{port}", "version": "scripted"}), flush=True)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
