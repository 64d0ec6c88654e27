"""Clients with stored work: create jobs, look at the results, cancel some, wait for the end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from batchyard import AsyncClient
from batchyard.async_jobs import FINISHED
from batchyard.errors import BatchyardError
from batchyard.v1 import (
    Attempt,
    ErrorReason,
    InferenceRequest,
    InferenceResult,
    JobItem,
    TextInput,
)
from tests.chaos.history import History

ITEMS = (5, 40)
OPEN = 2  # jobs at a time
PAUSE_S = 0.7  # between two looks
PATIENCE_S = 120.0  # for a job's end, once faults are over


class JobClients:
    """Jobs of a few dozen items, two at a time, until `stop` is set."""

    def __init__(self, client: AsyncClient, history: History, seed: int) -> None:
        self.client = client
        self.history = history
        self.stop = asyncio.Event()
        self._seed = seed

    async def run(self) -> None:
        """Returns when every job that was acknowledged has its end, or was waited for long."""
        await asyncio.gather(*(self._one_after_another(number) for number in range(OPEN)))

    async def _one_after_another(self, number: int) -> None:
        dice = random.Random(f"jobs {self._seed} {number}")
        count = 0
        while not self.stop.is_set():
            count += 1
            await self._job(f"j-{number}-{count}", dice)

    async def _job(self, job_id: str, dice: random.Random) -> None:
        subject = f"job {job_id}"
        tokens = [dice.randint(2, 30) for _ in range(dice.randint(*ITEMS))]
        cancel_at = dice.randint(1, 6) if dice.random() < 0.2 else 0
        self.history.note(subject, "invoked", items=len(tokens))
        if not await self._create(job_id, tokens):
            return
        self.history.note(subject, "acknowledged")
        left_s = PATIENCE_S
        looks = 0
        while left_s > 0:
            looks += 1
            try:
                if looks == cancel_at:
                    await self.client.jobs.cancel(job_id)
                    cancel_at = 0
                    rows = await self._until_cancelled(job_id, tokens)
                    self.history.note(subject, "cancelled", rows=rows)
                job = await self.client.jobs.get(job_id)
                rows = await self._rows(job_id, tokens)
            except BatchyardError:
                job = None
            if job is not None and job.state in FINISHED:
                rows = await self._rows(job_id, tokens)
                self.history.note(subject, "ended", rows=rows)
                return
            if job is not None:
                self.history.note(subject, "results", rows=rows)
            await asyncio.sleep(PAUSE_S)
            left_s -= PAUSE_S if self.stop.is_set() else 0.0

    async def _create(self, job_id: str, tokens: list[int]) -> bool:
        items = [_item(job_id, index, count) for index, count in enumerate(tokens)]
        for _ in range(60):
            try:
                await self.client.jobs.create(items, job_id=job_id)
            except BatchyardError:
                await asyncio.sleep(PAUSE_S)
            else:
                return True
        return False

    async def _until_cancelled(self, job_id: str, tokens: list[int]) -> list[list[Any]]:
        await self.client.jobs.wait(job_id)
        return await self._rows(job_id, tokens)

    async def _rows(self, job_id: str, tokens: list[int]) -> list[list[Any]]:
        """[index, custom id, reason, tokens asked for, text, nodes] of each result so far."""
        rows = []
        async for found in self.client.jobs.results(job_id, page_size=100):
            result = found.result
            reason = _reason(result)
            text = result.outputs[0].text if result.outputs else ""
            nodes = [
                f"{attempt.number} {attempt.node_id} {_reason(attempt)}".strip()
                for attempt in result.attempts
            ]
            rows.append([found.index, found.custom_id, reason, tokens[found.index], text, nodes])
        return rows


def _item(job_id: str, index: int, tokens: int) -> JobItem:
    request = InferenceRequest(model="m", text=TextInput(prompt=f"{job_id} {index}."))
    request.params.max_tokens = tokens
    return JobItem(custom_id=f"c{index}", request=request)


def _reason(ended: InferenceResult | Attempt) -> str:
    """Why it failed; empty: it did not."""
    if not ended.HasField("error"):
        return ""
    return ErrorReason.Name(ended.error.reason).removeprefix("ERROR_REASON_")
