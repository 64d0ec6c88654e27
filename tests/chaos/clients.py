"""Steady load: clients call, stream, cancel and ask again, and write down what they are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

from batchyard import AsyncClient, Result
from batchyard.errors import BatchyardError, Unavailable
from tests.chaos.history import History
from tests.chaos.raw_stream import raw_call

TIMEOUT_S = 40
TIMEOUT = f"{TIMEOUT_S}s"
END_S = 60.0  # by which a call with that timeout must have its end, come what may
UNKNOWN = (Unavailable,)
SPICES = (
    ("", 40.0), ("[[fail@1]]", 2.0), ("[[fail=3@1]]", 2.0), ("[[stall@1]]", 1.0),
    ("[[stall=3@1]]", 1.0), ("[[crash=2@1]]", 0.1), ("[[sleep=500ms]]", 2.0),
)  # fmt: skip


class Clients:
    """`count` callers at once until `stop` is set."""

    def __init__(self, client: AsyncClient, history: History, seed: int) -> None:
        self.client = client
        self.history = history
        self.stop = asyncio.Event()
        self._seed = seed
        self._calls = 0

    async def run(self, count: int) -> None:
        """Returns when all have the end of their last call."""
        await asyncio.gather(*(self._caller(number) for number in range(count)))

    async def _caller(self, number: int) -> None:
        dice = random.Random(f"{self._seed} {number}")
        ways = (self._generate, self._stream, self._cancelled, self._raw)
        while not self.stop.is_set():
            self._calls += 1
            subject = f"call {self._calls}"
            way = dice.choices(ways, (4, 4, 1, 2))[0]
            tokens = dice.randint(3, 60)
            spice = dice.choices([s for s, _ in SPICES], [w for _, w in SPICES])[0]
            prompt = f"{subject} of {number} {spice}"
            self.history.note(
                subject,
                "invoked",
                tokens=tokens,
                timeout_s=TIMEOUT_S,
                way=way.__name__,
                prompt=prompt,
            )
            await self._to_its_end(subject, way(subject, prompt, tokens, dice))

    async def _to_its_end(self, subject: str, call: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(END_S):
                await call
        except UNKNOWN as error:
            self.history.note(subject, "unknown", reason=error.reason, message=error.message)
            await self._breathe()
        except BatchyardError as error:
            self._failed(subject, error)
        except TimeoutError:
            self.history.note(subject, "hung")  # no end: a finding

    async def _breathe(self) -> None:
        try:
            async with asyncio.timeout(0.3):
                await self.stop.wait()
        except TimeoutError:
            pass

    async def _generate(self, subject: str, prompt: str, tokens: int, dice: random.Random) -> None:
        request_id = f"r-{self._seed}-{subject[5:]}"
        options: dict[str, Any] = {
            "model": "m", "max_tokens": tokens, "timeout": TIMEOUT, "request_id": request_id
        }  # fmt: skip
        result = await self.client.generate(prompt, **options)
        self._ok(subject, result.text, result)
        if dice.random() < 0.3:
            try:
                again = await self.client.generate(prompt, **options)
            except BatchyardError:
                return  # the scheduler may be away by now
            self.history.note(subject, "again", text=again.text, replayed=again.proto.replayed)

    async def _stream(self, subject: str, prompt: str, tokens: int, dice: random.Random) -> None:
        resume = dice.choice([None, "restart", "continue"])
        pieces: list[str] = []
        stream = self.client.stream(
            prompt, model="m", max_tokens=tokens, timeout=TIMEOUT, resume=resume
        )
        async with stream:
            async for event in stream:
                if event.restarted:
                    pieces.clear()
                pieces.append(event.text)
            self._ok(subject, "".join(pieces), stream.result)

    async def _cancelled(self, subject: str, prompt: str, tokens: int, dice: random.Random) -> None:
        request_id = f"r-{self._seed}-{subject[5:]}"
        call = asyncio.create_task(
            self.client.generate(
                prompt, model="m", max_tokens=tokens, timeout=TIMEOUT, request_id=request_id
            )
        )
        try:
            try:
                async with asyncio.timeout(dice.uniform(0.0, 1.5)):
                    await asyncio.shield(call)
            except TimeoutError:
                self.history.note(subject, "cancel_sent")
                found = await self.client.cancel(request_id)
                if found:
                    self.history.note(subject, "cancel_acknowledged")
            result = await call
            self._ok(subject, result.text, result)
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def _raw(self, subject: str, prompt: str, tokens: int, _: random.Random) -> None:
        heard = await raw_call(self.client.address, prompt, tokens)
        self.history.note(subject, "heard", messages=heard.messages)
        if heard.result is None:
            self.history.note(subject, "unknown", reason=heard.status)
        elif heard.reason:
            self.history.note(subject, "failed", reason=heard.reason, partial=heard.text)
        else:
            ids = [attempt.dispatch_id for attempt in heard.result.attempts]
            self.history.note(subject, "ok", text=heard.text, dispatch_ids=ids)

    def _ok(self, subject: str, text: str, result: Result) -> None:
        self.history.note(subject, "ok", text=text, dispatch_ids=_ids(result))

    def _failed(self, subject: str, error: BatchyardError) -> None:
        self.history.note(
            subject, "failed", reason=error.reason, message=error.message,
            partial=error.partial_text,
        )  # fmt: skip


def _ids(result: Result) -> list[int]:
    return [attempt.dispatch_id for attempt in result.proto.attempts]
