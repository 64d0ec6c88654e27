"""The way in: parse, load the configuration, run the agent, exit with its code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from node_agent import arguments, config_sources
from node_agent.app import EXIT_FAILURE, EXIT_USAGE, App, log_origins
from node_agent.engines.registry import build_engine
from service_kit import logs
from service_kit.parent import watch_stdin


def main(argv: list[str] | None = None) -> int:
    """Run an agent until it has drained. Returns the exit code."""
    options = arguments.parse(argv)
    try:
        loaded = config_sources.load(
            path=options.config, environ=os.environ, flags=options.flags, check_engine=_check
        )
    except config_sources.ConfigError as fault:
        sys.stderr.write(f"batchyard agent: the configuration cannot be used:\n{fault}\n")
        return EXIT_FAILURE if options.check else EXIT_USAGE
    if options.check:
        sys.stdout.write("the configuration is good\n")
        return 0
    writer = logs.set_up(form=loaded.config.log.format, level=loaded.config.log.level)
    log_origins(loaded, loaded.config)
    try:
        return _runner()(_run(loaded, exit_with_stdin=options.exit_with_stdin))
    finally:
        writer.stop()


def _check(engine_id: str, kind: str, options: dict[str, Any]) -> object:
    return build_engine(engine_id=engine_id, kind=kind, options=options)


async def _run(loaded: config_sources.LoadedConfig, *, exit_with_stdin: bool) -> int:
    engines = {
        e.engine_id: build_engine(engine_id=e.engine_id, kind=e.kind, options=e.options)
        for e in loaded.config.engines
    }
    app = App(loaded, engines, environ=os.environ)
    if exit_with_stdin:
        watch_stdin(app.on_parent_gone)
    return await app.run()


def _runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    runner: Callable[[Coroutine[Any, Any, int]], int] = uvloop.run
    return runner


if __name__ == "__main__":
    sys.exit(main())
