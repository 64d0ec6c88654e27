"""Is there a server to call? Starts llama.cpp's child, watches it, starts it again when it is gone.

    STARTING --warm--> SERVING --silent while work runs--> STALLED --answers--> SERVING
                          |                                   | silent for longer: killed
                          +------------ child gone -----------+--> DOWN --back-off--> STARTING

It serves from its first true answer on, not from its open port (a warm-up request).
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path

import aiohttp

from batchyard.v1 import node_service_pb2
from node_agent.engines.interface import EngineStartError
from node_agent.engines.llamacpp_child import ChildSettings
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_process import ChildFailed, LlamacppProcess, new_api_key
from node_agent.engines.llamacpp_watch import Sample, Watch

log = logging.getLogger(__name__)

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
_SOUND_S = 60.0  # a child that lived so long did not fail in a row with the one before


class LlamacppServer:
    """The supervised server of one model.

    `changed` is called when its health changes, `lost` when a child is gone (before `changed`);
    `busy` tells whether work runs on it.
    """

    def __init__(
        self,
        options: LlamacppOptions,
        model: str,
        path: Path,
        *,
        changed: Callable[[], None],
        lost: Callable[[], None],
        busy: Callable[[], bool],
    ) -> None:
        self._options = options
        self._model = model
        self._path = path
        self._changed = changed
        self._lost = lost
        self._busy = busy
        self._child: LlamacppProcess | None = None
        self._watch: Watch | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.session: aiohttp.ClientSession | None = None
        self.health = STARTING
        self.message = ""
        self.stalled_to_death = False  # the last child was killed because it did not answer
        self.doubted = False  # a call broke off: give it nothing until it answers a look

    @property
    def child(self) -> LlamacppProcess | None:
        """The child that runs now, or the last one."""
        return self._child

    @property
    def sample(self) -> Sample:
        """The last look at its load; nothing is known of one that does not serve."""
        if self._watch is None or self.health != SERVING:
            return Sample()
        return self._watch.sample

    @property
    def context_per_slot(self) -> int:
        """Tokens per slot: the server's word, else what was asked for."""
        seen = self._watch.context_per_slot if self._watch is not None else None
        return seen or self._options.context_per_slot

    async def start(self) -> None:
        """Bring the server up, and keep it up from then on.

        Raises:
            EngineStartError: it did not come up.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            raise EngineStartError("xllamacpp is not installed: pip install 'batchyard[llamacpp]'")
        try:
            await self._bring_up()
        except (ChildFailed, ValueError) as error:
            await self.stop()
            self.message = str(error)
            raise EngineStartError(f"the llama.cpp engine cannot serve: {error}") from error
        self._keeper = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """End the child and all that watches it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self.session is not None:
            await self.session.close()
        if self._child is not None:
            await self._child.close()
        self._set_health(DOWN, "stopped")

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = self._options.restart_delay
        while True:
            up_at = loop.time()
            await self._watch_until_gone()
            self._lost()
            if loop.time() - up_at > _SOUND_S:
                delay_s = self._options.restart_delay
            while True:
                self._set_health(DOWN, f"{self._obituary()}; next start in {delay_s:g} s")
                log.warning("llama.cpp engine: %s", self.message, extra={"event": "engine_failed"})
                await asyncio.sleep(delay_s)
                delay_s = min(max(delay_s * 2, 0.1), self._options.restart_delay_max)
                try:
                    await self._bring_up()
                except (ChildFailed, ValueError) as error:
                    log.warning(
                        "llama.cpp engine did not start: %s",
                        error,
                        extra={"event": "engine_failed"},
                    )
                else:
                    break

    async def _bring_up(self) -> None:
        options = self._options
        self._set_health(STARTING, "")
        if self.session is not None:
            await self.session.close()
        key = new_api_key()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + options.start_timeout
        self._child = await LlamacppProcess.start(self._settings(key), options.start_timeout)
        self.session = aiohttp.ClientSession(
            self._child.address,
            headers={"Authorization": f"Bearer {key}"},
            # A kept connection may be closed by the server just as it is used again.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._warm_up()
        except (TimeoutError, aiohttp.ClientError) as error:
            self._child.kill()
            await self._child.wait()
            words = self._child.last_words()
            raise ChildFailed(f"it did not answer a first request{words}") from error
        self._watch = Watch(self.session, loop.time())
        await self._watch.look()
        self.stalled_to_death = self.doubted = False
        self._set_health(SERVING, "")

    def _settings(self, key: str) -> ChildSettings:
        options = self._options
        return {
            "model_path": str(self._path),
            "model": self._model,
            "slots": options.slots,
            "context": options.context_per_slot * options.slots,
            "threads": options.thread_count(),
            "batch_threads": options.batch_threads or options.thread_count(),
            "batch_tokens": options.batch_tokens,
            "api_key": key,
        }

    async def _warm_up(self) -> None:
        """Return once a first request was answered; 503 means that it still loads."""
        assert self.session is not None
        body = {"prompt": "Hello", "max_tokens": 1}
        while True:
            async with self.session.post("/v1/completions", json=body) as response:
                text = await response.text()
            if response.status == 200:
                return
            if response.status != 503:
                raise ChildFailed(f"its first answer was {response.status}: {text[:200]}")
            await asyncio.sleep(self._options.poll_interval)

    async def _watch_until_gone(self) -> None:
        assert self._child is not None
        assert self._watch is not None
        gone = asyncio.create_task(self._child.wait())
        try:
            while True:
                done, _ = await asyncio.wait({gone}, timeout=self._options.poll_interval)
                if done:
                    return
                if await self._watch.look() and self.doubted:
                    self.doubted = False  # it was one connection, not the server
                    self._changed()
                self._judge(self._watch.silence_s(asyncio.get_running_loop().time()))
        finally:
            gone.cancel()

    def _judge(self, silence_s: float) -> None:
        limit_s = self._options.stall_timeout
        if silence_s < limit_s:
            if self.health == STALLED:
                self._set_health(SERVING, "")
        elif self._busy():
            self._set_health(STALLED, f"has not answered for {silence_s:.0f} s")
            if silence_s >= limit_s + self._options.stall_kill:
                self.stalled_to_death = True
                assert self._child is not None
                self._child.kill()

    def _obituary(self) -> str:
        assert self._child is not None
        if self.stalled_to_death:
            return "llama.cpp's process did not answer and was killed"
        return f"llama.cpp's process {self._child.how_it_ended()}"

    def _set_health(self, health: node_service_pb2.EngineHealth, message: str) -> None:
        changed = health != self.health
        self.health, self.message = health, message
        if changed:
            self._changed()
