"""How long does an agent work? From its engines' start until it has drained, or is sent away."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from node_agent import doctor
from node_agent.app import EXIT_USAGE, App, log_origins
from node_agent.config import default_node_id
from node_agent.config_sources import LoadedConfig
from node_agent.engines.interface import Engine
from node_agent.engines.registry import build_engine
from node_agent.own_id import visible_gpus
from node_agent.rpc.dial import DialError
from service_kit import garbage
from service_kit.parent import watch_stdin


def check_engine(engine_id: str, kind: str, options: dict[str, Any]) -> Engine:
    """Build it, and start nothing.

    Raises:
        ValueError: unknown kind, or faulty options; all faults are named, one a line.
    """
    return build_engine(engine_id=engine_id, kind=kind, options=options)


async def examine(loaded: LoadedConfig, form: str) -> int:
    """Look at what an agent of this configuration would need; 0: all is well, 1: not."""
    config, visible = loaded.config, visible_gpus(os.environ)
    path = str(loaded.path or "")
    node_id = config.node_id or default_node_id(config, socket.gethostname(), path, visible)
    return await doctor.examine(config, _engines(loaded), node_id, form=form)


async def until_drained(loaded: LoadedConfig, *, exit_with_stdin: bool) -> int:
    """Work; return the exit code."""
    log_origins(loaded, loaded.config)
    try:
        app = App(loaded, _engines(loaded), environ=os.environ)
    except DialError as fault:
        sys.stderr.write(f"batchyard agent: {fault}\n")
        return EXIT_USAGE
    if exit_with_stdin:
        watch_stdin(app.on_parent_gone)
    garbage.quieten()
    return await app.run()


def _engines(loaded: LoadedConfig) -> dict[str, Engine]:
    return {
        engine.engine_id: check_engine(engine.engine_id, engine.kind, engine.options)
        for engine in loaded.config.engines
    }
