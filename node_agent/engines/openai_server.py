"""Is there a server to call? Attaches to one, or keeps one as a child; notices when it is gone.

    STARTING --first answer--> SERVING --silent, or an item hung--> STALLED --trial--> SERVING
       ^                          |                                    | a child: killed
       +------- found again ------+--- connection refused, child gone -+--> DOWN

It serves from its first true answer on, not from its open port. An attached server may come, go and
come back as another: it is asked anew what it is each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines import openai_adapters
from node_agent.engines.faults import unavailable
from node_agent.engines.guarded_process import GuardedProcess, free_port
from node_agent.engines.interface import EngineStartError, ModelRefused
from node_agent.engines.openai_finding import Finder, NotReady
from node_agent.engines.openai_look import Looker, Sample
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_served import Served, ServedModel

log = logging.getLogger(__name__)

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
ACTIVE, FAILED = types_pb2.MODEL_STATE_ACTIVE, types_pb2.MODEL_STATE_FAILED
_SOUND_S = 60.0  # a child that lived so long did not fail in a row with the one before
_TRIAL_S = 10.0  # for one token
_FIND_S = 120.0  # for one that was doubted to say again what it is
_RETRY_MAX_S = 600.0  # between two tries of a model that does not answer
_NO_MODELS = "; load one, or wait until it has"
_FAILED = {"event": "engine_failed"}
_SILENT = (NotReady, aiohttp.ClientError, OSError, TimeoutError)


class OpenaiServer:
    """The server of one engine.

    `changed` is called when health or models change, `lost` when the server is gone (before
    `changed`), `looked` after each look at its load.
    """

    def __init__(
        self,
        options: OpenaiOptions,
        *,
        changed: Callable[[], None],
        lost: Callable[[str], None],
        looked: Callable[[Sample], None],
    ) -> None:
        self._options = options
        self._changed = changed
        self._lost = lost
        self._looked = looked
        self._child: GuardedProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._looker: Looker | None = None
        self._finder: Finder | None = None
        self._answered_at = 0.0
        self._models_at = 0.0
        self._trial_at: float | None = None  # an item hung: when to try the engine next
        self._hung_at = 0.0
        self.address = options.url
        self.session: aiohttp.ClientSession | None = None
        self.served = Served(options=options)
        self.health = STARTING
        self.message = ""
        self.doubted = False  # a call broke off: give it nothing until it says what it is
        self._noted = ""

    @property
    def child(self) -> GuardedProcess | None:
        """The child, if the server is one; else None."""
        return self._child

    @property
    def sample(self) -> Sample:
        """The last look at its load; nothing is known of one that does not serve."""
        if self._looker is None or self.health != SERVING:
            return Sample()
        return self._looker.sample

    async def start(self) -> None:
        """Find the server, or bring it up; keep it from then on.

        Raises:
            EngineStartError: it did not serve within `start_timeout`.
        """
        options = self._options
        try:
            options.read_key()
            async with asyncio.timeout(options.start_timeout):
                await self._come_up()
        except (TimeoutError, _Gone, ValueError) as error:
            why = self.message if isinstance(error, TimeoutError) else str(error)
            await self.stop()
            self.message = why
            raise EngineStartError(f"no OpenAI-compatible server to work with: {why}") from error
        self._keeper = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """End the child, and all that watches."""
        tasks = [task for task in (self._keeper, self._warming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keeper = self._warming = None
        if self.session is not None:
            await self.session.close()
        if self._child is not None:
            await self._child.close()
        self._set_health(DOWN, "stopped")

    def suspect_hang(self) -> None:
        """An item heard nothing for too long: no more work until a trial is answered."""
        if self._trial_at is None and self.health in (SERVING, STARTING):
            now = asyncio.get_running_loop().time()
            self._trial_at, self._hung_at = now, now
            self._set_health(STALLED, "a request heard nothing for too long; it is being tried")

    def models_stale(self) -> None:
        """It said that a model is not there: list them again soon."""
        self._models_at = 0.0

    async def load_adapter(self, name: str, options: Mapping[str, Any]) -> None:
        """Have an adapter loaded, and answer a first request.

        Raises:
            ModelRefused: the server cannot, or it does not answer.
        """
        served, finder, session = self.served, self._finder, self.session
        loading = served.traits.load
        fault = openai_adapters.why_not(served, loading, "load", name)
        if fault is not None or loading is None or finder is None or session is None:
            raise ModelRefused(fault or unavailable("the server is not there"))
        theirs = self._options.models.get(name, name)
        served.models[name] = served.asked[name] = ServedModel(name=name, engine_name=theirs)
        served.added[name] = theirs
        self._changed()
        try:
            await openai_adapters.change(session, loading, theirs, options)
            model = await finder.find_model(served, name)
            await finder.warm_up(model)
        except BaseException as error:
            served.models.pop(name, None)
            served.added.pop(name, None)
            if isinstance(error, _SILENT):
                raise ModelRefused(unavailable(f"the adapter does not answer: {error}")) from error
            raise
        finally:
            served.asked.pop(name, None)
        served.models[name] = model
        self._changed()

    async def unload_adapter(self, name: str) -> None:
        """Have an adapter unloaded.

        Raises:
            ModelRefused: the server does not.
        """
        served, unloading = self.served, self.served.traits.unload
        assert self.session is not None
        assert unloading is not None
        await openai_adapters.change(self.session, unloading, served.models[name].engine_name, {})
        served.models.pop(name, None)
        served.added.pop(name, None)
        self._changed()

    async def _keep_up(self) -> None:
        delay_s = self._options.restart_delay
        while True:
            up_at = asyncio.get_running_loop().time()
            why = await self._watch_until_gone()
            self._lost(why)
            self._set_health(DOWN, why)
            log.warning("openai engine: %s", why, extra={"event": "engine_changed"})
            if asyncio.get_running_loop().time() - up_at > _SOUND_S:
                delay_s = self._options.restart_delay
            while True:
                if self._options.command:
                    await asyncio.sleep(delay_s)
                    delay_s = min(max(delay_s * 2, 0.1), self._options.restart_delay_max)
                try:
                    await self._come_up()
                except _Gone as gone:
                    self._set_health(DOWN, str(gone))
                else:
                    log.info("openai engine: serves again", extra={"event": "engine_ready"})
                    break

    async def _come_up(self) -> None:
        """Return when the first model serves.

        Raises:
            _Gone: the child ended, or did not serve in time and was ended.
        """
        limit_s, loop = self._options.start_timeout, asyncio.get_running_loop()
        if self._warming is not None:
            self._warming.cancel()
        if self.session is not None:
            await self.session.close()
        if self._options.command:
            await self._start_child()
            self._set_health(STARTING, "")
        self.session = aiohttp.ClientSession(
            f"{self.address}/",
            # A kept connection may be closed by the server just as it is used again.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )
        give_up_at = loop.time() + limit_s
        while True:
            try:
                async with asyncio.timeout(limit_s):
                    await self._find(self.session)
                return
            except Exception as error:
                self._note(error)
                connected = not isinstance(error, aiohttp.ClientConnectorError)
                self._wait_for(connected, error)
            if self._child is not None:
                await self._end_if_late(self._child, loop.time() >= give_up_at)
            await asyncio.sleep(self._options.poll_interval)

    async def _end_if_late(self, child: GuardedProcess, late: bool) -> None:
        """Raises _Gone: the child has ended, or is late, and ended for that."""
        if child.exit_status is None and not late:
            return
        why = _obituary(child)
        if child.exit_status is None:
            why = f"the server did not serve within {self._options.start_timeout:g} s"
            why = f"{why} and was killed; {self.message}"
            child.kill()
        await child.wait()
        raise _Gone(why if late else _obituary(child))

    def _wait_for(self, connected: bool, error: BaseException) -> None:
        """Show why it is not there yet: it loads, or nothing listens."""
        if connected or self._options.command:
            self._set_health(STARTING, f"{self.address}: {_words(error)}")
        else:
            self._set_health(self.health, f"nothing answers at {self.address}: {_words(error)}")

    def _note(self, error: Exception) -> None:
        """Log what no server should be able to cause; it is watched on all the same."""
        if not isinstance(error, _SILENT) and repr(error) != self._noted:
            self._noted = repr(error)
            log.error("openai engine: cannot be read", exc_info=error, extra=_FAILED)

    async def _start_child(self) -> None:
        if self._child is not None:
            await self._child.close()
        port = free_port()
        command = [word.replace("{port}", str(port)) for word in self._options.command]
        self.address = f"http://127.0.0.1:{port}"
        self._child = await GuardedProcess.start(command, self._options.working_directory)

    async def _find(self, session: aiohttp.ClientSession) -> None:
        self._renew_key(session)
        finder = Finder(session, self._options)
        served = await finder.find(self.served)
        if finder.left_out:
            text = "openai engine: %d of its models are left out: odd names, or too many"
            log.warning(text, finder.left_out, extra={"event": "engine_changed"})
        first = await self._warm_first(finder, served)
        await finder.settle_priority(served, first)
        self._finder, self.served = finder, served
        self._looker = Looker(session, served)
        await self._look(self._looker)
        now = asyncio.get_running_loop().time()
        self._answered_at = self._models_at = now
        self._trial_at, self.doubted = None, False
        self._set_health(SERVING, "", force=True)
        if self._warming is not None:
            self._warming.cancel()
            self._warming = None
        self._warm_rest()

    def _renew_key(self, session: aiohttp.ClientSession) -> None:
        """The key may be another one than when it was asked last."""
        try:
            key = self._options.read_key()
        except ValueError as error:
            raise NotReady(str(error)) from error
        if key:
            session.headers["Authorization"] = f"Bearer {key}"

    async def _warm_first(self, finder: Finder, served: Served) -> ServedModel:
        """Return the first model that answers; bases come first."""
        last: Exception = NotReady(
            "it lists no model"
            + (f" of `models`, but {finder.listed}" if self._options.models else _NO_MODELS)
        )
        for model in sorted(served.models.values(), key=lambda model: bool(model.base)):
            try:
                await finder.warm_up(model)
                return model
            except NotReady as error:
                last = error
        raise last

    def _warm_rest(self) -> None:
        """Let the other models answer, one after the other, beside the work; those that failed
        are asked again, ever more rarely.
        """
        served, now = self.served, asyncio.get_running_loop().time()
        waiting = [
            model
            for name, model in served.models.items()
            if model.state != ACTIVE and name not in served.asked and now >= model.retry_at
        ]
        if not waiting:
            return
        if self.served.traits.loads_on_demand:
            for model in waiting:
                model.state = ACTIVE
            self._changed()
            return
        if self._warming is None or self._warming.done():
            self._warming = asyncio.create_task(self._warm(waiting))

    async def _warm(self, models: list[ServedModel]) -> None:
        for model in models:
            try:
                assert self._finder is not None
                async with asyncio.timeout(self._options.start_timeout):
                    await self._finder.warm_up(model)
            except _SILENT as error:
                log.warning(
                    "openai engine: model %r does not serve: %s",
                    model.name,
                    error,
                    extra={"event": "model_failed"},
                )
                model.state = FAILED
                model.failures += 1
                wait_s = self._options.models_interval * 2 ** min(model.failures, 20)
                now = asyncio.get_running_loop().time()
                model.retry_at = now + min(wait_s, _RETRY_MAX_S)
            self._changed()

    async def _watch_until_gone(self) -> str:
        """Look at it on a fixed beat; return why it is gone."""
        while True:
            await asyncio.sleep(self._options.poll_interval)
            try:
                gone = await self._watch_once()
            except Exception as error:
                self._note(error)
                continue
            if gone:
                return gone

    async def _watch_once(self) -> str:
        """Look once; return why it is gone, or nothing."""
        if self._child is not None and self._child.exit_status is not None:
            await self._child.wait()
            return _obituary(self._child)
        assert self._looker is not None
        try:
            answered = await self._look(self._looker)
        except aiohttp.ClientConnectorError as error:
            if self._child is None:
                return f"nothing answers at {self.address}: {_words(error)}"
            answered = False
        now = asyncio.get_running_loop().time()
        if answered:
            self._answered_at = now
            await self._attend(now)
        elif now - self._answered_at >= self._options.stall_timeout:
            silence_s = now - self._answered_at
            self._set_health(STALLED, f"has not answered for {silence_s:.0f} s")
        self._give_up_on_child(now)
        return ""

    async def _look(self, looker: Looker) -> bool:
        answered = await looker.look()
        self._looked(looker.sample)
        return answered

    async def _attend(self, now: float) -> None:
        """It answers: clear doubts, try it if it hung, see which models it has."""
        assert self.session is not None
        try:
            if self.doubted:  # it may be another one by now
                async with asyncio.timeout(self._options.first_token_timeout or _FIND_S):
                    await self._find(self.session)
            elif self._trial_at is not None:
                if now >= self._trial_at:
                    self._trial_at = now + self._options.trial_interval
                    await self._try_again()
            elif self.health == STALLED:
                self._set_health(SERVING, "")
            elif now - self._models_at >= self._options.models_interval:
                await self._list_models(now)
        except _SILENT as error:
            log.info("openai engine: %s", _words(error), extra={"event": "engine_changed"})
            if self.doubted and isinstance(error, TimeoutError):
                self.suspect_hang()
            elif self.doubted:
                self._set_health(STARTING, f"{self.address}: {_words(error)}")

    async def _try_again(self) -> None:
        """One token, within seconds, from the model that has been shown to serve."""
        model = next((m for m in self.served.models.values() if m.state == ACTIVE), None)
        if model is None:  # it has others by now
            self.doubted = True
            return
        assert self._finder is not None
        async with asyncio.timeout(min(_TRIAL_S, self._options.first_token_timeout or _TRIAL_S)):
            await self._finder.warm_up(model)
        self._trial_at = None
        self._set_health(SERVING, "")

    async def _list_models(self, now: float) -> None:
        """See whether it is the same as before, and which models it has."""
        assert self.session is not None
        self._models_at = now
        served = self.served
        found = await Finder(self.session, self._options).find(served)
        if found.told != served.told:  # another one, that came too quickly to be missed
            self.doubted = True
            return
        models = {name: served.models.get(name, model) for name, model in found.models.items()}
        renewed = [models[name].renew(model) for name, model in found.models.items()]
        models |= served.asked
        if any(renewed) or models.keys() != served.models.keys():
            served.models = models
            self._changed()
        self._warm_rest()

    def _give_up_on_child(self, now: float) -> None:
        if self._child is None or self.health != STALLED:
            return
        since = self._hung_at if self._trial_at is not None else self._answered_at
        if now - since >= self._options.stall_timeout + self._options.stall_kill:
            log.warning(
                "openai engine: the server hangs and is killed", extra={"event": "engine_failed"}
            )
            self._child.kill()

    def _set_health(
        self, health: node_service_pb2.EngineHealth, message: str, *, force: bool = False
    ) -> None:
        changed = health != self.health or force
        self.health, self.message = health, message
        if changed:
            self._changed()


def _obituary(child: GuardedProcess) -> str:
    return f"the server's process {child.how_it_ended()}"


def _words(error: BaseException) -> str:
    """What it says, in words for people."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.strerror or error.os_error)
    return str(error) or "it does not answer in time"


class _Gone(Exception):
    """The child ended before it served."""
