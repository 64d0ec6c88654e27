"""Which models does one llama.cpp engine have? Each is a GGUF file in a server of its own.

The servers share the engine's slots, for no more than those are given out in all, and each could
use all of them. A model that is there from the start is started again when it dies; so is one that
was loaded later, until it is unloaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.interface import EngineError, EngineStartError, ModelRefused
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_server import DOWN, SERVING, STALLED, STARTING, LlamacppServer

log = logging.getLogger(__name__)

_STATES = {SERVING: types_pb2.MODEL_STATE_ACTIVE, DOWN: types_pb2.MODEL_STATE_FAILED}

MakeServer = Callable[[str, Path], LlamacppServer]


class LlamacppModels:
    """The servers of one engine, by public name. `make` builds one, not started."""

    def __init__(self, options: LlamacppOptions, make: MakeServer) -> None:
        self._options = options
        self._make = make
        self._stopped = False
        self.servers: dict[str, LlamacppServer] = {}
        self.names = options.model_names()  # described before they are started

    @property
    def health(self) -> node_service_pb2.EngineHealth:
        """SERVING while one serves, or while there is none: one may be loaded."""
        if self._stopped:
            return DOWN
        found = {server.health for server in self.servers.values()}
        if not self.servers:
            return STARTING if self.names else SERVING
        return next(health for health in (SERVING, STALLED, STARTING, DOWN) if health in found)

    @property
    def message(self) -> str:
        """What is amiss with any."""
        if len(self.servers) == 1:
            return next(iter(self.servers.values())).message
        words = (f"{name}: {s.message}" for name, s in self.servers.items() if s.message)
        return "; ".join(words)

    def states(self) -> dict[str, types_pb2.ModelState]:
        """Of all that are there, and of those that can be loaded by name alone."""
        loading = types_pb2.MODEL_STATE_LOADING
        states = dict.fromkeys(self._options.loadable_names(), types_pb2.MODEL_STATE_AVAILABLE)
        states |= dict.fromkeys(self.names, loading)
        return states | {n: _STATES.get(s.health, loading) for n, s in self.servers.items()}

    async def start(self) -> None:
        """Start the configured ones; return when the first serves and the others had their time.

        Raises:
            EngineStartError: none came up.
        """
        try:
            paths = {name: self._options.find_model(name) for name in self.names}
        except ValueError as error:
            raise EngineStartError(f"the llama.cpp engine cannot serve: {error}") from error
        self.servers = {name: self._make(name, path) for name, path in paths.items()}
        starts = [server.start() for server in self.servers.values()]
        faults = await asyncio.gather(*starts, return_exceptions=True)
        for fault in faults:
            if fault is not None and not isinstance(fault, EngineStartError):
                raise fault
        failed = [fault for fault in faults if fault is not None]
        if failed and len(failed) == len(faults):
            raise failed[0]
        for fault in failed:
            log.error("llama.cpp engine: %s", fault, extra={"event": "engine_failed"})

    async def stop(self) -> None:
        """End all."""
        self._stopped = True
        await asyncio.gather(*(server.stop() for server in self.servers.values()))

    async def load(self, name: str, options: Mapping[str, Any]) -> None:
        """Start a server for one more model.

        Raises:
            ModelRefused: there is no such file here, or it cannot be served.
        """
        unknown = sorted(set(options) - {"file"})
        if unknown:
            text = f"{unknown[0]!r} is not an option of a model; there is: file"
            raise _refusal(types_pb2.ERROR_REASON_INVALID_ARGUMENT, text)
        try:
            path = self._options.find_model(name, str(options.get("file", "")))
        except (ValueError, OSError) as error:  # OSError: a name that no file can have
            reason = types_pb2.ERROR_REASON_RESOURCE_NOT_FOUND
            raise _refusal(reason, str(error)) from error
        former = self.servers.get(name)
        if former is not None:
            await former.stop()
        server = self.servers[name] = self._make(name, path)
        self.names = [*dict.fromkeys([*self.names, name])]
        try:
            await server.start()
        except BaseException as error:
            await server.stop()
            self._forget(name)
            if isinstance(error, EngineStartError):
                raise _refusal(types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, str(error)) from error
            raise

    async def unload(self, name: str) -> None:
        """End the server of a model; its memory is free."""
        await self.servers[name].stop()
        self._forget(name)

    def _forget(self, name: str) -> None:
        self.servers.pop(name, None)
        self.names = [each for each in self.names if each != name]


def _refusal(reason: types_pb2.ErrorReason, message: str) -> ModelRefused:
    return ModelRefused(EngineError(reason=reason, message=message, field="options_json"))
