"""Is this worker's process up, and what did it answer? One object per worker, over many processes.

LOADING --loaded, warmed up--> READY --batch--> BUSY --answer--> READY
   ^                                             | dead, too slow, not to be interrupted: killed
   +----------------- back-off ------------------+
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

import psutil
from google.protobuf.message import DecodeError

from batchyard.v1 import node_service_pb2
from node_agent.engines.child_process import ChildProcess
from node_agent.engines.python_child import LENGTH
from node_agent.engines.python_options import PythonOptions

log = logging.getLogger("node_agent.engine.child")

CHILD_MODULE = "node_agent.engines.python_child"
_PATIENCE_S = 1.0  # to be gone, once killed


class WorkerLost(Exception):
    """The process ended, or had to be ended; the text says why."""

    def __init__(self, why: str, *, stalled: bool = False) -> None:
        super().__init__(why)
        self.stalled = stalled


class PythonWorker:
    """One worker. `changed` is called when it becomes ready, or is no more."""

    def __init__(self, options: PythonOptions, changed: Callable[[], None]) -> None:
        self._options = options
        self._changed = changed
        self._child: ChildProcess | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._failures = 0
        self._stalled = False
        self.ready = False
        self.message = ""

    @property
    def pid(self) -> int | None:
        """Of its process; None: there is none."""
        return self._child.pid if self._child is not None else None

    async def start(self) -> None:
        """Bring the process up.

        Raises:
            WorkerLost: it did not come up, or did not answer its first request.
        """
        options = self._options
        folders = [str(options.path)] if options.path is not None else []
        self._stalled = False
        try:
            process = await asyncio.create_subprocess_exec(
                options.python or sys.executable,
                "-m",
                CHILD_MODULE,
                options.callable,
                *(folders or [""]),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        except OSError as error:
            raise WorkerLost(f"its interpreter cannot be started: {error}") from error
        self._child = ChildProcess(process, process.stderr, patience_s=_PATIENCE_S)
        self._watcher = asyncio.create_task(self._watch(self._child))
        try:
            async with asyncio.timeout(options.start_timeout):
                await self._receive(self._child)
                await self._warm_up()
        except TimeoutError as error:
            await self._end()
            raise WorkerLost(f"was not ready in {options.start_timeout:g} s") from error
        except WorkerLost:
            await self._end()
            raise
        self._failures = 0
        self._set_ready(True, "")

    async def _watch(self, child: ChildProcess) -> None:
        """It may die while nobody asks it anything; what it started may hold its output open."""
        await child.exited()
        child.kill_session()
        await child.wait()
        if self.ready and self._child is child:
            self._set_ready(False, self._obituary(child))

    async def restart(self) -> None:
        """Bring it up again, and again, until it is."""
        await self._end()
        while True:
            delay_s = self._options.restart_delay * 2 ** min(self._failures, 16)
            self._failures += 1
            await asyncio.sleep(min(delay_s, self._options.restart_delay_max))
            try:
                await self.start()
                return
            except WorkerLost as lost:
                self._set_ready(False, str(lost))
                log.warning("python engine: %s", lost, extra={"event": "engine_failed"})

    async def run(self, batch: node_service_pb2.DispatchBatch) -> node_service_pb2.ConnectRequest:
        """Have a batch answered.

        Raises:
            WorkerLost: there will be no answer; the worker must be restarted.
        """
        child, limit_s = self._child, self._options.batch_timeout
        assert child is not None
        try:
            async with asyncio.timeout(limit_s or None):
                data = batch.SerializeToString()
                await child.send(LENGTH.pack(len(data)) + data)
                answer = await self._receive(child)
        except TimeoutError as error:
            self._set_ready(False, f"a call took more than {limit_s:g} s")
            raise WorkerLost(self.message, stalled=True) from error
        except (OSError, WorkerLost) as error:
            await child.wait()
            self._set_ready(False, self._obituary(child))
            raise WorkerLost(self.message) from error
        try:
            reply = node_service_pb2.ConnectRequest.FromString(answer)
        except DecodeError:
            reply = node_service_pb2.ConnectRequest()
        if [r.dispatch_id for r in reply.results] != [i.dispatch_id for i in batch.items]:
            self._set_ready(False, "it answered what it was not asked")
            raise WorkerLost(self.message)
        return reply

    def interrupt(self) -> None:
        """Break off the running call, if the function can be interrupted."""
        if self._child is not None and self._child.exit_status is None:
            self._child.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End the process by force; what it runs is lost."""
        if self._child is not None:
            self._child.kill_session()

    def is_too_large(self) -> bool:
        """Whether the process holds more memory than it may."""
        limit = self._options.memory_limit
        if limit is None or self.pid is None:
            return False
        try:
            return bool(psutil.Process(self.pid).memory_info().rss > limit)
        except psutil.Error:
            return False

    async def stop(self) -> None:
        """End the process."""
        await self._end()

    async def _warm_up(self) -> None:
        if not self._options.warm_up:
            return
        batch = node_service_pb2.DispatchBatch(model=self._options.public_name)
        batch.items.add(dispatch_id=1).request.text.prompt = self._options.warm_up
        (result,) = (await self.run(batch)).results
        if result.HasField("error"):
            raise WorkerLost(f"its first request failed (warm_up): {result.error.message}")

    async def _receive(self, child: ChildProcess) -> bytes:
        stdout = child.process.stdout
        assert stdout is not None
        try:
            (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
            return await stdout.readexactly(length) if length else b""
        except asyncio.IncompleteReadError as error:
            await child.wait()
            raise WorkerLost(self._obituary(child)) from error

    async def _end(self) -> None:
        child, self._child = self._child, None
        self.ready = False
        if self._watcher is not None:
            self._watcher.cancel()
        if child is not None:
            child.kill_session()
            await child.close()

    def _obituary(self, child: ChildProcess) -> str:
        return f"the process of {self._options.callable} {child.how_it_ended()}"

    def _set_ready(self, ready: bool, message: str) -> None:
        self.ready, self.message = ready, message
        self._changed()
