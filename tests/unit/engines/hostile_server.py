"""An OpenAI-compatible server that does what it is told by the prompt, above all the wrong things.

It says that it is vLLM, counts what runs and waits as vLLM does, and records what it was sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TEXT = "长城 🙂 ok"
HALVES = (  # of one character in two events, each in its own way, and what they make
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\xe9\x95"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\xbf"}}]}\n\n',
)
JOINED = "\U0001f600\u957f"
LIMIT = 500  # of its context, in characters


class HostileServer:
    """The scripts, by the last word of the prompt; anything else is answered with TEXT."""

    def __init__(self) -> None:
        self.owner = "vllm"
        self.models: list[dict[str, Any]] = [{"id": "m", "max_model_len": 4096}]
        self.takes_priority = False
        self.updates_adapters = True
        self.adapter_may_load = asyncio.Event()
        self.adapter_may_load.set()
        self.loading = 0  # requests that are still answered with 503
        self.hangs = False
        self.runs_at_once = 1000
        self.metrics = ""  # what it tells of its load; empty: the truth
        self.usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 11}
        self.refuses: dict[str, int] = {}  # status of every answer, by model
        self.refused = 0  # so often
        self.key = ""  # without it nobody is let in; empty: no key is asked for
        self.vectors: list[list[float]] | None = None  # None: one for each text
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.may_deny = asyncio.Event()
        self.denied = 0  # requests with 401 or 403
        self.open = 0
        self.peak = 0
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self, root: str = "") -> None:
        """Serve at the path `root`."""
        app = web.Application()
        app.router.add_get(f"{root}/health", self._health)
        app.router.add_get(f"{root}/v1/models", self._models)
        app.router.add_get(f"{root}/metrics", self._metrics)
        app.router.add_post(f"{root}/v1/chat/completions", self._generate)
        app.router.add_post(f"{root}/v1/completions", self._generate)
        app.router.add_post(f"{root}/v1/embeddings", self._embed)
        app.router.add_post(f"{root}/v1/load_lora_adapter", self._load)
        app.router.add_post(f"{root}/v1/unload_lora_adapter", self._unload)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}{root}"

    async def stop(self) -> None:
        """Be gone; `start` brings it back at the same port."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        rows = [{"object": "model", "owned_by": self.owner, **row} for row in self.models]
        return web.json_response({"data": rows})

    async def _metrics(self, _: web.Request) -> web.Response:
        running = min(self.open, self.runs_at_once)
        return web.Response(
            text=self.metrics
            or f'vllm:num_requests_running{{engine="0"}} {running}\n'
            f'vllm:num_requests_waiting{{engine="0"}} {self.open - running}\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
        )

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not self.updates_adapters:
            return _error(404, "Not Found")
        if not body.get("lora_path"):
            return _error(400, "Both 'lora_name' and 'lora_path' must be provided.")
        await self.adapter_may_load.wait()
        self.models.append({"id": body["lora_name"], "parent": "m"})
        return web.Response(text="Success")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.models = [row for row in self.models if row["id"] != name]
        return web.Response(text="Success")

    async def _embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        vectors = [[float(i), 0.5] for i in range(len(texts))]
        vectors = vectors if self.vectors is None else self.vectors
        rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return web.json_response({"data": rows[::-1], "usage": {"prompt_tokens": 3}})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, "wrong key")
        if self.loading > 0:
            self.loading -= 1
            return _error(503, "Loading model")
        if body.get("priority") and not self.takes_priority:
            return _error(400, "priority is not supported")
        if body["model"] in self.refuses:
            self.refused += 1
            return _error(self.refuses[body["model"]], "told to")
        if body["model"] not in [row["id"] for row in self.models]:
            return _error(404, f"The model `{body['model']}` does not exist.")
        prompt = _prompt(body)
        self.bodies.append(body)
        self.headers.append(request.headers.copy())
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            return await self._act(request, body, prompt)
        finally:
            self.open -= 1

    async def _act(
        self, request: web.Request, body: dict[str, Any], prompt: str
    ) -> web.StreamResponse:
        if self.hangs:
            await asyncio.Event().wait()
        if len(prompt) > LIMIT:
            words = f"This model's maximum context length is {LIMIT} tokens. However, you requested"
            return _error(400, f"{words} {len(prompt)} tokens")
        word = prompt.split()[-1] if prompt.split() else ""
        if word.isdigit():
            self.denied += word in ("401", "403")
            return _error(int(word), "told to")
        if word == "late":
            await self.may_deny.wait()
            return _error(401, "wrong key")
        if word == "silent":
            await asyncio.Event().wait()
        if not body.get("stream"):
            return web.json_response({**_event("", "stop"), "model": body["model"], "odd": 2**60})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for part in _script(word, body, self.usage):
            await response.write(part)
        return response


async def _script(word: str, body: dict[str, Any], usage: dict[str, Any]) -> AsyncIterator[bytes]:
    if word == "bytes":
        for byte in b"".join([*map(_sse, map(_event, TEXT)), _sse(_event("", "stop"))]):
            yield bytes([byte])
        return
    if word == "hold":
        yield _sse(_event("a"))
        await asyncio.Event().wait()
    if word == "slow":
        for character in "slowly":
            yield _sse(_event(character))
            await asyncio.sleep(0.1)
    if word == "halves":
        for piece in HALVES:
            yield piece
    for character in TEXT:
        yield _sse(_event(character))
    if word == "malformed":
        yield b"data: {not json\n\n"
    elif word == "endless":
        yield b"data: " + b"x" * 9_000_000
    elif word == "unfinished":
        yield b"data: [DONE]\n\n"
    elif word == "moderated":
        yield _sse({"error": {"message": "not this", "code": 403}})
    elif word == "abort":
        yield _sse(_event("", "abort"))
    elif word != "broken":
        yield _sse(_event("", "stop"))
        if word != "nousage" and body.get("stream_options"):
            yield _sse({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def _prompt(body: dict[str, Any]) -> str:
    if "prompt" in body:
        return str(body["prompt"])
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else ""


def _event(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"choices": [choice]}


def _sse(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


@asynccontextmanager
async def hostile_server() -> AsyncIterator[HostileServer]:
    """A started server that is gone at the end."""
    server = HostileServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def _serve(port: int) -> None:
    server = HostileServer()
    server._port = port
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.stderr.write("hostile server: starting\n")
    asyncio.run(_serve(int(sys.argv[1])))
