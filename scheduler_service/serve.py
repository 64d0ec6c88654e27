"""How long does the scheduler serve? From its ready line to the first signal, until drained."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
from dataclasses import asdict
from typing import Final

from scheduler_service.app import App
from scheduler_service.config_sources import LoadedConfig
from scheduler_service.identity import IdentityError, load_identity
from scheduler_service.jobs.store import StoreDamaged
from scheduler_service.recorded import RecordingRefused
from scheduler_service.security.guard import GuardError
from scheduler_service.servers import BindError
from service_kit import garbage
from service_kit.event_loop import loop_factory
from service_kit.open_files import raise_limit
from service_kit.parent import watch_stdin
from service_kit.version import package_version

log = logging.getLogger(__name__)

# What `until_stopped` raises.
CANNOT_SERVE: Final = (BindError, IdentityError, GuardError, RecordingRefused, StoreDamaged)


def run(loaded: LoadedConfig, *, exit_with_stdin: bool) -> None:
    """`until_stopped`, on a loop of its own."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(until_stopped(loaded, exit_with_stdin=exit_with_stdin))


async def until_stopped(loaded: LoadedConfig, *, exit_with_stdin: bool) -> None:
    """Serve until SIGTERM, SIGINT or, if wanted, the end of standard input. A second signal ends
    the process at once.

    Raises:
        BindError: a port cannot be had.
        IdentityError: the state folder cannot be used.
        GuardError: certificates or grants cannot be used.
        RecordingRefused: the file for the recording cannot be written.
        StoreDamaged: the store of jobs cannot be used.
    """
    _check_open_files(loaded.config.abuse.connections)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if exit_with_stdin:
        watch_stdin(stop.set)
    identity = load_identity(loaded.config.state_dir)
    app = App(loaded.config, identity, package_version())
    addresses = await app.start()
    garbage.quieten()
    for path, origin in loaded.origins.items():
        log.debug("%s comes from %s", path, origin)
    log.info("serving", extra={"event": "scheduler_ready", **asdict(addresses)})
    print(json.dumps({"event": "ready", **asdict(addresses)}), flush=True)
    await stop.wait()
    log.info("stopping", extra={"event": "scheduler_stopping"})
    await app.stop()
    gc.freeze()  # the interpreter would look through all of it once more before it ends


def _check_open_files(connections: int) -> None:
    limit = raise_limit()
    if 0 < limit < connections:
        text = "this process may open %d files, fewer than connections (abuse.connections: %d)"
        log.warning(text, limit, connections, extra={"event": "few_open_files"})
