"""The way in: parse, load the configuration, serve until told to stop."""

from __future__ import annotations

import os
import sys

import service_kit.before_grpc  # noqa: F401 # first, for what it sets
from batchyard import quiet_start
from scheduler_service import arguments, config_sources, doctor, serve
from service_kit import config_show, logs


def main(argv: list[str] | None = None) -> int:
    """Run a scheduler. Returns the exit code."""
    options = arguments.parse(argv)
    if options.check:
        return config_sources.check_file(options.config, environ=os.environ, flags=options.flags)
    try:
        loaded = config_sources.load(options.config, environ=os.environ, flags=options.flags)
    except config_sources.ConfigError as fault:
        sys.stderr.write(f"batchyard scheduler: the configuration cannot be used:\n{fault}\n")
        return 2
    if options.show:
        return config_show.tell(loaded.config, loaded.origins)
    if options.doctor:
        return doctor.examine(loaded.config, os.environ)
    writer = logs.set_up(form=loaded.config.log.format, level=loaded.config.log.level)
    try:
        serve.run(loaded, exit_with_stdin=options.exit_with_stdin)
    except serve.CANNOT_SERVE as fault:
        sys.stderr.write(f"batchyard scheduler: {fault}\n")
        return 1
    finally:
        writer.stop()
    return 0


if __name__ == "__main__":
    sys.exit(quiet_start.over(main))
