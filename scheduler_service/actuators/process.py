"""Agents as processes of this machine: one more per scale-out, and it reaps what ends.

A child is an ordinary `python -m node_agent` with `--managed`, so the scheduler may drain it: on
scale-in the core tells the agent to finish and exit, and this only sees it go. A child that was
started and has not joined yet is stopped when it is no longer wanted. Children end with us, however
we end: they watch their standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler_service.core.commands import RequestScale

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 10.0
_TAIL: Final = 2_000  # bytes of a failed child's last words


@dataclass(slots=True)
class _Child:
    pool: str
    node_id: str
    process: asyncio.subprocess.Process
    watch: asyncio.Task[None] | None = None
    tail: bytearray = field(default_factory=bytearray)
    stopping: bool = False


class ProcessActuator:
    """Starts and stops agent processes."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        on_failed: Callable[[str, str], None],
        joined: Callable[[str], bool],
        failed_start: Callable[[str], bool] = lambda _node_id: False,
    ) -> None:
        """
        Args:
            arguments: of `python -m node_agent`.
            on_failed: takes pool and message.
            joined: whether the node of that id has come.
            failed_start: whether it has left again as no engine of it could serve.
        """
        self._arguments = list(arguments)
        self._on_failed = on_failed
        self._joined = joined
        self._failed_start = failed_start
        self._children: dict[str, _Child] = {}  # by node id, oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._closed = False

    def scale(self, command: RequestScale) -> None:
        """Start what is lacking; stop what was started and is no longer wanted."""
        wanted = command.desired - command.ready - command.starting
        if wanted > 0:
            for _ in range(wanted):
                task = asyncio.ensure_future(self._start(command.pool))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        else:
            self._stop_starting(command.pool, -wanted - len(command.drained))

    def _stop_starting(self, pool: str, count: int) -> None:
        """Those that have not joined, the youngest first."""
        mine = [c for c in self._children.values() if c.pool == pool and not c.stopping]
        waiting = [c for c in reversed(mine) if not self._joined(c.node_id)]
        for child in waiting[: max(0, count)]:
            child.stopping = True
            _signal(child)

    async def _start(self, pool: str) -> None:
        if self._closed:
            return
        self._number += 1
        node_id = f"auto-{os.getpid()}-{self._number}"
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "node_agent", *self._arguments,
                "--node-id", node_id, "--managed", "--exit-with-stdin",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as fault:
            self._on_failed(pool, f"an agent cannot be started: {fault}")
            return
        child = _Child(pool, node_id, process)
        self._children[node_id] = child
        fields = {"event": "agent_started", "node_id": node_id, "pool": pool}
        log.info("agent started", extra=fields)
        child.watch = asyncio.ensure_future(self._watch(child))

    async def _watch(self, child: _Child) -> None:
        """Pass its log on, and reap it. One that had joined did start, unless its engines could
        not: the core sees it go.
        """
        await _pass_on(child)
        code = await child.process.wait()
        self._children.pop(child.node_id, None)
        if code == 0 or child.stopping or self._closed:
            return
        last = child.tail.decode(errors="replace").strip().splitlines()[-1:]
        message = f"agent {child.node_id} ended with code {code}: {' '.join(last) or 'no word'}"
        if self._joined(child.node_id) and not self._failed_start(child.node_id):
            fields = {"event": "agent_ended", "node_id": child.node_id, "pool": child.pool}
            log.warning("%s", message, extra=fields)
        else:
            self._on_failed(child.pool, message)

    async def close(self) -> None:
        """Stop all children: politely, then for good. Bounded by STOP_GRACE_S."""
        self._closed = True
        children = list(self._children.values())
        for child in children:
            child.stopping = True
            _signal(child)
        watches = [c.watch for c in children if c.watch is not None]
        if watches:
            _, late = await asyncio.wait(watches, timeout=STOP_GRACE_S)
            if late:
                for child in children:
                    with contextlib.suppress(ProcessLookupError):
                        child.process.kill()
                await asyncio.wait(late)


async def _pass_on(child: _Child) -> None:
    """Its log, line by line, to ours, until it has closed it. Nothing may end this before: an agent
    whose log nobody takes stands still as soon as the pipe is full.
    """
    assert child.process.stderr is not None
    while True:
        try:
            line = await child.process.stderr.readline()
        except ValueError:
            continue  # longer than the reader's limit, which has dropped it
        if not line:
            return
        with contextlib.suppress(OSError):  # ours is full or closed
            sys.stderr.buffer.write(line)
        child.tail += line
        del child.tail[:-_TAIL]


def _signal(child: _Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.process.terminate()
