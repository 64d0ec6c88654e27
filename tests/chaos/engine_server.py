"""An engine that is a server of its own, spoken to as vLLM is; its text can be checked.

    python -m tests.chaos.engine_server PORT

After SIGUSR1 it answers nonsense for a while: events that are no JSON or of no known form, bytes
that are no text, streams that end too early or break off, and status 500.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from typing import Any

from aiohttp import web

from tests.chaos.marked_text import PREFILL_S, TOKEN_S, answer, split

GARBLING_S = 2.0
GARBAGE = (
    b'data: {"choices": [{"index": 0, "te\n\n',
    b'data: {"choices": 7}\n\n',
    b'data: {"choices": [{"index": 0, "text": 17}]}\n\n',
    b"\xff\xfe\x00\x80 no event at all \xc3(\n\n",
    b"data: [DONE]\n\n",
    b"",
)


class Server:
    """One model, `m`."""

    def __init__(self) -> None:
        self._garbles_until = 0.0
        self._garbage = itertools.cycle(GARBAGE)

    def garble(self) -> None:
        """Answer nonsense from now on, for a while."""
        self._garbles_until = asyncio.get_running_loop().time() + GARBLING_S

    @property
    def _garbles(self) -> bool:
        return asyncio.get_running_loop().time() < self._garbles_until

    async def models(self, _: web.Request) -> web.Response:
        row = {"id": "m", "owned_by": "vllm", "max_model_len": 100_000}
        return web.json_response({"data": [row]})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self._garbles and next(self._garbage) == b"":
            return web.Response(status=500, text="\x00 not itself")
        prompt, first = split(body["prompt"])
        count = body["max_tokens"]
        if body.get("stream"):
            return await self._stream(request, prompt, first, count)
        await asyncio.sleep(PREFILL_S + TOKEN_S * count)
        return web.json_response(_event(answer(prompt, first, count), count, "length"))

    async def _stream(
        self, request: web.Request, prompt: str, first: int, count: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(PREFILL_S)
        for number in range(count):
            if self._garbles:
                await response.write(next(self._garbage))
                assert request.transport is not None
                request.transport.close()
                return response
            text = answer(prompt, first + number, 1)
            event = _event(text, number + 1, "length" if number == count - 1 else None)
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            await asyncio.sleep(TOKEN_S)
        await response.write(b"data: [DONE]\n\n")
        return response


def _event(text: str, written: int, finish: str | None) -> dict[str, Any]:
    usage = {"prompt_tokens": 1, "completion_tokens": written}
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": usage}


async def serve(port: int) -> None:
    """Serve at that port of the loopback until the process is ended."""
    server, app = Server(), web.Application()
    app.add_routes([web.get("/v1/models", server.models), web.get("/health", server.health)])
    app.router.add_post("/v1/completions", server.complete)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, server.garble)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
