"""The way in: parse, load the configuration, run the agent, exit with its code."""

from __future__ import annotations

import asyncio
import os
import sys

import service_kit.before_grpc  # noqa: F401 # first, for what it sets
from batchyard import quiet_start
from node_agent import arguments, config_sources, serve
from node_agent.app import EXIT_USAGE
from service_kit import config_show, event_loop, logs


def main(argv: list[str] | None = None) -> int:
    """Run an agent until it has drained. Returns the exit code."""
    options = arguments.parse(argv)
    form = config_sources.form(serve.check_engine)
    if options.check:
        return form.check(options.config, environ=os.environ, flags=options.flags)
    try:
        loaded = form.load(options.config, environ=os.environ, flags=options.flags)
    except config_sources.ConfigError as fault:
        sys.stderr.write(f"batchyard agent: the configuration cannot be used:\n{fault}\n")
        return EXIT_USAGE
    if options.show:
        return config_show.tell(loaded.config, loaded.origins)
    writer = logs.set_up(form=loaded.config.log.format, level=loaded.config.log.level)
    try:
        with asyncio.Runner(loop_factory=event_loop.loop_factory()) as runner:
            if options.doctor:
                return runner.run(serve.examine(loaded, options.doctor))
            return runner.run(serve.until_drained(loaded, exit_with_stdin=options.exit_with_stdin))
    finally:
        writer.stop()


if __name__ == "__main__":
    sys.exit(quiet_start.over(main))
