"""Which models has the server, and which of them answer? Adapters are loaded and unloaded here.

The first model that answers makes the server one that serves; the others follow beside the work.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from batchyard.v1 import types_pb2
from node_agent.engines import openai_adapters
from node_agent.engines.faults import unavailable
from node_agent.engines.interface import ModelRefused
from node_agent.engines.openai_finding import SILENT, Finder, NotReady
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_served import Served, ServedModel

log = logging.getLogger(__name__)

ACTIVE, FAILED = types_pb2.MODEL_STATE_ACTIVE, types_pb2.MODEL_STATE_FAILED
_TRIAL_S = 10.0  # for a first request, where only a denial counts
_RETRY_MAX_S = 600.0  # between two tries of a model that does not answer
_MODELS = "name in `models` what it lists, as {public: theirs}, or have it load them"
_NO_MODELS = "; load one, or wait until it has"


class OpenaiModels:
    """The models of one server. `changed` is called when they or their states change."""

    def __init__(self, options: OpenaiOptions, changed: Callable[[], None]) -> None:
        self._options = options
        self._changed = changed
        self._session: aiohttp.ClientSession | None = None
        self._finder: Finder | None = None
        self._warming: asyncio.Task[None] | None = None
        self._trials: dict[str, asyncio.Task[bool]] = {}  # by model
        self.served = Served(options=options)
        self.listed_at = 0.0  # loop time

    def attach(self, session: aiohttp.ClientSession) -> None:
        """Ask over `session` from now on."""
        self._session = session

    async def find(self) -> None:
        """Find out what serves there; return once a first model of it has answered.

        Raises:
            NotReady: none does yet, and the text says why.
        """
        session = self._session
        assert session is not None
        self._renew_key(session)
        finder = Finder(session, self._options)
        served = await finder.find(self.served)
        if finder.left_out:
            text = "openai engine: %d of its models are left out: odd names, or too many"
            log.warning(text, finder.left_out, extra={"event": "engine_changed"})
        self._show_loading(served)
        first = await self._warm_first(finder, served)
        await finder.settle_priority(served, first)
        self._finder, self.served = finder, served

    def _show_loading(self, served: Served) -> None:
        """Where none has served yet, those that it lists can be seen, and waited for."""
        before = self.served.models
        if before.keys() != served.models.keys() and all(
            model.state != ACTIVE for model in before.values()
        ):
            self.served = served
            self._changed()

    async def list_again(self, now: float) -> bool:
        """See which models it has now; False: it is another server than before."""
        assert self._session is not None
        self.listed_at = now
        served = self.served
        found = await Finder(self._session, self._options).find(served)
        if found.told != served.told:
            return False
        models = {name: served.models.get(name, model) for name, model in found.models.items()}
        renewed = [models[name].renew(model) for name, model in found.models.items()]
        models |= served.asked
        if any(renewed) or models.keys() != served.models.keys():
            served.models = models
            self._changed()
        self._warm_rest()
        return True

    async def try_one(self) -> bool:
        """Have a model that has been shown to serve answer one token; False: there is none."""
        model = next((m for m in self.served.models.values() if m.state == ACTIVE), None)
        if model is None:
            return False
        assert self._finder is not None
        await self._finder.warm_up(model)
        return True

    @property
    def key(self) -> str | None:
        """What calls go out with now; None: nothing."""
        return self._session.headers.get("Authorization") if self._session is not None else None

    async def lets_in(self, name: str) -> bool:
        """Whether the server lets in a first request for a model that has answered one, by the
        key of now. One question answers all that ask meanwhile; silence is no denial.

        Raises:
            aiohttp.ClientError: it is not there.
        """
        trial = self._trials.get(name)
        if trial is None:
            trial = self._trials[name] = asyncio.create_task(self._is_let_in(name))
            trial.add_done_callback(functools.partial(self._on_tried, name))
        return await asyncio.shield(trial)

    def stale(self) -> None:
        """The server said that a model is not there: list them again soon."""
        self.listed_at = 0.0

    def warm_anew(self) -> None:
        """Let all that have not answered do so, beside the work."""
        self.cancel_warming()
        self._warming = None
        self._warm_rest()

    def cancel_warming(self) -> None:
        """Ask the models for first answers no more."""
        if self._warming is not None:
            self._warming.cancel()

    async def stop(self) -> None:
        """Ask for nothing more."""
        self.cancel_warming()
        asked = [*self._trials.values(), *filter(None, [self._warming])]
        for trial in self._trials.values():
            trial.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        self._warming = None

    async def load_adapter(self, name: str, options: Mapping[str, Any]) -> None:
        """Have an adapter loaded, and answer a first request.

        Raises:
            ModelRefused: the server cannot, or it does not answer.
        """
        served, finder, session = self.served, self._finder, self._session
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
            if isinstance(error, SILENT):
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
        assert self._session is not None
        assert unloading is not None
        await openai_adapters.change(self._session, unloading, served.models[name].engine_name, {})
        served.models.pop(name, None)
        served.added.pop(name, None)
        self._changed()

    async def _is_let_in(self, name: str) -> bool:
        model, finder = self.served.models.get(name), self._finder
        if model is None or finder is None:
            return True
        try:
            async with asyncio.timeout(_TRIAL_S):
                return await finder.lets_in(model)
        except TimeoutError:
            return True

    def _on_tried(self, name: str, trial: asyncio.Task[bool]) -> None:
        del self._trials[name]
        if not trial.cancelled():
            trial.exception()  # read, also where nobody waits any more

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
            + (f" of `models`, but {finder.listed}" if self._options.models else _NO_MODELS),
            remedy=_MODELS if self._options.models else "",
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
        if served.traits.loads_on_demand:
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
            except SILENT as error:
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
