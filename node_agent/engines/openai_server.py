"""Is there a server to call? Attaches to one, or keeps one as a child; notices when it is gone.

    STARTING --first answer--> SERVING --silent, or an item hung--> STALLED --trial--> SERVING
       ^                          |                                    | a child: killed
       +------- found again ------+--- connection refused, child gone -+--> DOWN

It serves from its first true answer on, not from its open port; one that refuses the agent's key is
DOWN as well. An attached server may come, go and
come back as another: it is asked anew what it is each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from batchyard.v1 import node_service_pb2
from node_agent.engines.guarded_process import GuardedProcess
from node_agent.engines.interface import EngineStartError
from node_agent.engines.openai_child import ChildGone, end_if_late, obituary, start_child
from node_agent.engines.openai_finding import SILENT, KeyRefused, remedy_of, words
from node_agent.engines.openai_look import Looker, Sample
from node_agent.engines.openai_models import OpenaiModels
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_served import Served

log = logging.getLogger(__name__)

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
_SOUND_S = 60.0  # a child that lived so long did not fail in a row with the one before
_TRIAL_S = 10.0  # for one token
_FIND_S = 120.0  # for one that was doubted to say again what it is
_FAILED = {"event": "engine_failed"}


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
        self._looker: Looker | None = None
        self._answered_at = 0.0
        self._trial_at: float | None = None  # an item hung: when to try the engine next
        self._hung_at = 0.0
        self.address = options.url
        self.session: aiohttp.ClientSession | None = None
        self.models = OpenaiModels(options, changed)
        self.health = STARTING
        self.message = ""
        self.remedy = ""  # for that; empty: wait
        self.doubted = False  # a call broke off: give it nothing until it says what it is
        self._noted = ""

    @property
    def child(self) -> GuardedProcess | None:
        """The child, if the server is one; else None."""
        return self._child

    @property
    def served(self) -> Served:
        """What serves there, as far as it was found out."""
        return self.models.served

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
        except (TimeoutError, ChildGone, ValueError) as error:
            why = self.message if isinstance(error, TimeoutError) else str(error)
            await self.stop()
            self.message = why
            raise EngineStartError(f"no OpenAI-compatible server to work with: {why}") from error
        self._keeper = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """End the child, and all that watches."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        await self.models.stop()
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
                except ChildGone as gone:
                    self._set_health(DOWN, str(gone))
                else:
                    log.info("openai engine: serves again", extra={"event": "engine_ready"})
                    break

    async def _come_up(self) -> None:
        """Return when the first model serves.

        Raises:
            ChildGone: the child ended, or did not serve in time and was ended.
        """
        limit_s, loop = self._options.start_timeout, asyncio.get_running_loop()
        self.models.cancel_warming()
        if self.session is not None:
            await self.session.close()
        if self._options.command:
            if self._child is not None:
                await self._child.close()
            self._child, self.address = await start_child(self._options)
            self._set_health(STARTING, "")
        self.session = aiohttp.ClientSession(
            f"{self.address}/",
            # A kept connection may be closed by the server just as it is used again.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )
        self.models.attach(self.session)
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
                late = loop.time() >= give_up_at
                await end_if_late(self._child, late=late, limit_s=limit_s, words=self.message)
            await asyncio.sleep(self._options.poll_interval)

    def _wait_for(self, connected: bool, error: BaseException) -> None:
        """Show why it is not there yet: it loads, lets nobody in, or nothing listens."""
        remedy = "" if self._options.command else remedy_of(error)
        if connected or self._options.command:
            self._set_health(_away(error), f"{self.address}: {words(error)}", remedy=remedy)
        else:
            why = f"nothing answers at {self.address}: {words(error)}"
            self._set_health(self.health, why, remedy=remedy)

    def _note(self, error: Exception) -> None:
        """Log what no server should be able to cause; it is watched on all the same."""
        if not isinstance(error, SILENT) and repr(error) != self._noted:
            self._noted = repr(error)
            log.error("openai engine: cannot be read", exc_info=error, extra=_FAILED)

    async def _find(self, session: aiohttp.ClientSession) -> None:
        await self.models.find()
        self._looker = Looker(session, self.served)
        await self._look(self._looker)
        now = asyncio.get_running_loop().time()
        self._answered_at = self.models.listed_at = now
        self._trial_at, self.doubted = None, False
        self._set_health(SERVING, "", force=True)
        self.models.warm_anew()

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
            return obituary(self._child)
        assert self._looker is not None
        try:
            answered = await self._look(self._looker)
        except aiohttp.ClientConnectorError as error:
            if self._child is None:
                return f"nothing answers at {self.address}: {words(error)}"
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
        due = now - self.models.listed_at >= self._options.models_interval
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
            elif due and not await self.models.list_again(now):
                self.doubted = True  # another one, that came too quickly to be missed
        except SILENT as error:
            if words(error) not in self.message:  # else it was told already
                level = logging.WARNING if isinstance(error, KeyRefused) else logging.INFO
                extra = {"event": "engine_changed"}
                log.log(level, "openai engine: %s", words(error), extra=extra)
            if self.doubted and isinstance(error, TimeoutError):
                self.suspect_hang()
            elif self.doubted or isinstance(error, KeyRefused):
                self.doubted = True
                self._set_health(_away(error), f"{self.address}: {words(error)}")
            elif self._trial_at is not None:
                self._set_health(STALLED, f"a request heard nothing for too long: {words(error)}")

    async def _try_again(self) -> None:
        """One token, within seconds, from the model that has been shown to serve."""
        async with asyncio.timeout(min(_TRIAL_S, self._options.first_token_timeout or _TRIAL_S)):
            tried = await self.models.try_one()
        if not tried:  # it has others by now
            self.doubted = True
            return
        self._trial_at = None
        self._set_health(SERVING, "")

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
        self,
        health: node_service_pb2.EngineHealth,
        message: str,
        *,
        remedy: str = "",
        force: bool = False,
    ) -> None:
        changed = health != self.health or force
        self.health, self.message, self.remedy = health, message, remedy
        if changed:
            self._changed()


def _away(error: BaseException) -> node_service_pb2.EngineHealth:
    """What a server is that answers and does not serve: it loads, or lets its agent not in."""
    return DOWN if isinstance(error, KeyRefused) else STARTING
