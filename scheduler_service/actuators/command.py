"""The user's own command, with the desired count as JSON on standard input: what a cluster needs.

    {"pool": "m", "desired": 3, "ready": 2, "starting": 0, "reason": "...", "drained": []}

One run at a time per pool; while one runs, only the latest decision waits. A run that fails, or
takes more than a minute, is reported, and what it was to start is not awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from scheduler_service.core.commands import RequestScale

log = logging.getLogger(__name__)

TIME_LIMIT_S: Final = 60.0


class CommandActuator:
    """Runs the command."""

    def __init__(self, argv: Sequence[str], *, on_failed: Callable[[str, str], None]) -> None:
        self._argv = list(argv)
        self._on_failed = on_failed
        self._running: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, RequestScale] = {}

    def scale(self, command: RequestScale) -> None:
        """Run it now, or when the present run of the pool has ended."""
        if command.pool in self._running:
            self._next[command.pool] = command
        else:
            self._running[command.pool] = asyncio.ensure_future(self._serve(command))

    async def _serve(self, command: RequestScale) -> None:
        pool = command.pool
        try:
            wanted: RequestScale | None = command
            while wanted is not None:
                await self._run(wanted)
                wanted = self._next.pop(pool, None)
        finally:
            del self._running[pool]

    async def _run(self, command: RequestScale) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as fault:
            self._on_failed(command.pool, f"{self._argv[0]} cannot be run: {fault}")
            return
        try:
            talk = process.communicate(json.dumps(asdict(command)).encode())
            _, said = await asyncio.wait_for(talk, TIME_LIMIT_S)
        except (TimeoutError, asyncio.CancelledError) as end:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(end, asyncio.CancelledError):
                raise
            self._on_failed(command.pool, f"{self._argv[0]} took more than {TIME_LIMIT_S:.0f} s")
            return
        if process.returncode != 0:
            words = said.decode(errors="replace").strip()[-500:] or "no word"
            self._on_failed(
                command.pool, f"{self._argv[0]} ended with code {process.returncode}: {words}"
            )

    async def close(self) -> None:
        """Stop what runs."""
        for task in list(self._running.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
