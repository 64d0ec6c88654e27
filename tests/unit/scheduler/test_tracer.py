"""Whatever happens to the scheduler, each span that it began is ended."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from scheduler_service.core.types import SECOND, Request
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.security.principals import LOCAL
from scheduler_service.telemetry.sampling import RootSampler
from scheduler_service.telemetry.tracer import RequestTracer
from tests.unit.scheduler.small_world import SmallWorld


class Traced(SmallWorld):
    """All requests are sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        sampler = RootSampler({"OTEL_TRACES_SAMPLER": "always_on"})
        self.tracer = RequestTracer(
            provider, self.clock, lambda: self.driver.scheduler.state, sampler
        )
        self.driver.observe(self.tracer)

    async def ask(self, **fields: Any) -> Request:
        """One request by `Generate`, behind one that nobody traces and that has the only slot."""
        await self.join("n0", slots=1)
        (self.ahead,) = await self.submit()
        (request,) = await self.submit(**fields)
        entry = Entry(request, b"", self.clock)
        request.context = entry
        self.tracer.on_entry(entry, Opening(b"", LOCAL, ("", ""), "Generate"))
        return request

    async def dispatch(self) -> None:
        """It has the slot now."""
        await self.finish(self.ahead)

    def ended(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


async def test_a_request_that_ends_while_it_waits_tells_of_its_wait() -> None:
    world = Traced()
    request = await world.ask(max_wait=2 * SECOND)
    for _ in range(3):
        await world.pass_time(1)
    assert request.finished_at
    wait, schedule = world.ended()["queue wait"], world.ended()["schedule m"]
    assert wait.attributes["batchyard.queue.outcome"] == "expired"
    assert (wait.start_time, wait.end_time) == (schedule.start_time, schedule.end_time)
    assert "attempt 1" not in world.ended()


async def test_a_batch_that_is_never_sent_ends_with_its_members() -> None:
    world = Traced()
    request = await world.ask()
    await world.dispatch()
    assert "send batch m" not in world.ended(), "it has not been packed"
    await world.finish(request)
    batch, attempt = world.ended()["send batch m"], world.ended()["attempt 1"]
    assert batch.attributes["batchyard.batch.bytes"] == 0
    assert [link.context for link in batch.links] == [attempt.context]
    assert [link.context for link in attempt.links] == [batch.context]


async def test_packing_the_last_item_of_a_batch_ends_its_span() -> None:
    world = Traced()
    request = await world.ask()
    await world.dispatch()
    (attempt,) = request.attempts
    told = world.tracer.batch_context(attempt.batch, [b"12345"])
    batch = world.ended()["send batch m"]
    assert told is not None
    assert f"{batch.context.span_id:016x}" in told.traceparent
    assert batch.attributes["batchyard.batch.bytes"] == 5
    assert world.tracer.batch_context(attempt.batch, []) is None


async def test_a_core_that_starts_anew_leaves_no_span_open() -> None:
    world = Traced()
    await world.ask()
    await world.dispatch()
    assert not world.ended().keys() & {"schedule m", "attempt 1"}
    world.tracer.close("INTERNAL")
    for name in ("schedule m", "attempt 1", "batchyard.v1.SchedulerService/Generate"):
        span = world.ended()[name]
        assert span.attributes["error.type"] == "INTERNAL"
        assert not span.status.is_ok
    assert "send batch m" in world.ended()
