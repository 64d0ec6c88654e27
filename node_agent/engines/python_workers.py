"""Which workers are free? All of one engine: started together, and each anew when it is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from node_agent.engines.python_options import PythonOptions
from node_agent.engines.python_worker import PythonWorker


class PythonWorkers:
    """`changed` is called when one is ready, or is no more; `freed` when one was started anew."""

    def __init__(
        self, options: PythonOptions, *, changed: Callable[[], None], freed: Callable[[], None]
    ) -> None:
        self._changed = changed
        self._freed = freed
        self.all = [PythonWorker(options, self.review) for _ in range(options.workers)]
        self._idle: deque[PythonWorker] = deque()
        self._restarts: set[asyncio.Task[None]] = set()
        self._retired = False

    @property
    def pids(self) -> list[int]:
        """Of their processes."""
        return [worker.pid for worker in self.all if worker.pid is not None]

    @property
    def message(self) -> str:
        """What is amiss with any."""
        return "; ".join(worker.message for worker in self.all if worker.message)

    async def start(self) -> None:
        """Bring all of them up, or none.

        Raises:
            WorkerLost: one did not come up.
        """
        starts = [asyncio.create_task(worker.start()) for worker in self.all]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await asyncio.gather(*(worker.stop() for worker in self.all))
            raise
        self._idle.extend(self.all)

    async def stop(self) -> None:
        """End their processes; what they hold in memory is free."""
        self._idle.clear()
        restarts = list(self._restarts)
        for task in restarts:
            task.cancel()
        await asyncio.gather(*restarts, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self.all))

    def retire(self) -> None:
        """From now on none is used again."""
        self._retired = True

    def take(self) -> PythonWorker | None:
        """One for the next batch; None: all are busy."""
        return self._idle.popleft() if self._idle else None

    def give_back(self, worker: PythonWorker, *, lost: bool) -> None:
        """It is through with its batch; one that was lost, or has grown too large, starts anew."""
        if self._retired:
            return
        if not lost and not worker.is_too_large():
            self._idle.append(worker)
            return
        task = asyncio.create_task(self._restart(worker))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def review(self) -> None:
        """See to those that died idle."""
        for worker in [worker for worker in self._idle if not worker.ready]:
            self._idle.remove(worker)
            self.give_back(worker, lost=True)
        self._changed()

    async def _restart(self, worker: PythonWorker) -> None:
        await worker.restart()
        self._idle.append(worker)
        self._freed()
