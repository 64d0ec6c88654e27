"""What came of every request, node and second of a run? Plain columns; `summary.py` reads them.

One row per request in typed arrays, so a million of them take some 60 MB.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scheduler_service.core import Scheduler, records
from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import NodeAvailability, Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import Duration, Instant, Request
from simulator.engines.interface import Work
from simulator.watchers import Watcher

if TYPE_CHECKING:
    from simulator.world import World

OUTCOMES = list(Outcome)
_OUTCOME_NUMBER = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Rows:
    """The requests that have ended, in the order in which they did."""

    def __init__(self) -> None:
        self.submitted = array("q")  # instant
        self.wait = array("q")  # in the queue, over all stays
        self.first_output = array("q")  # from submission on; -1: none came
        self.total = array("q")  # from submission to the outcome
        self.priority = array("b")
        self.tenant = array("l")  # index into `Metrics.tenants`
        self.outcome = array("b")  # index into OUTCOMES
        self.attempts = array("b")
        self.degraded = array("b")
        self.prompt_tokens = array("l")
        self.output_tokens = array("l")
        self.deadline = array("q")  # instant; NEVER: none

    def __len__(self) -> int:
        return len(self.wait)


class Series:
    """Looks at the world at equal distances."""

    def __init__(self) -> None:
        self.at = array("q")
        self.waiting = array("l")  # interactive
        self.jobs = array("l")  # waiting
        self.in_flight = array("l")  # inputs on nodes
        self.slots = array("l")  # of live nodes
        self.ready = array("l")  # nodes that take work
        self.oldest = array("q")  # wait of the oldest


class Metrics(Watcher):
    """Counts and columns of one run."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.series = Series()
        self.tenants: dict[str, int] = {}  # index by name
        self.reasons: Counter[str] = Counter()  # of all outcomes but success
        self.events: Counter[str] = Counter()  # records by kind
        self.slot_time: Counter[tuple[str, str, str]] = Counter()  # by kind, tenant, model: ns
        self.submitted = 0
        self.in_system = 0  # now
        self.in_system_integral = 0  # request-nanoseconds
        self.sojourn = 0  # sum over finished requests
        self.started_at: Instant = -1
        self.ended_at: Instant = 0
        self._changed_at: Instant = 0

    def on_submitted(self, now: Instant, requests: Sequence[Request]) -> None:
        """Calls came in."""
        if self.started_at < 0:
            self.started_at = now
        self._count(now, len(requests))
        self.submitted += len(requests)
        self.sojourn -= now * len(requests)

    def _count(self, now: Instant, change: int) -> None:
        self.in_system_integral += self.in_system * (now - self._changed_at)
        self._changed_at = now
        self.in_system += change

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """One row."""
        self._count(now, -1)
        self.sojourn += now
        self.ended_at = now
        request, outcome, rows = command.request, command.outcome, self.rows
        ticket = request.context
        rows.submitted.append(request.received_at)
        rows.wait.append(request.queue_time)
        first = ticket.first_output_at
        if first < 0 and isinstance(command.payload, Work):
            first = command.payload.first_output_at  # what a stream would have shown
        rows.first_output.append(first - request.received_at if first >= 0 else -1)
        rows.total.append(now - request.received_at)
        rows.priority.append(request.priority)
        rows.tenant.append(self.tenants.setdefault(request.tenant, len(self.tenants)))
        rows.outcome.append(_OUTCOME_NUMBER[outcome])
        rows.attempts.append(min(127, len(request.attempts)))
        rows.degraded.append(request.degraded)
        rows.prompt_tokens.append(ticket.arrival.prompt_tokens)
        done = outcome is Outcome.SUCCEEDED
        rows.output_tokens.append(ticket.arrival.output_tokens if done else 0)
        rows.deadline.append(request.deadline)
        if not done:
            self.reasons[command.reason.name] += 1

    def on_recorded(self, now: Instant, taken: Sequence[Record]) -> None:
        """Count by kind; add up the time of slots."""
        del now
        events = self.events
        for record in taken:
            events[record.kind] += 1
            attempt = record.attempt
            if record.kind == records.ATTEMPT_ENDED and attempt is not None:
                kind = attempt.node.spec.labels.get("kind", "")
                key = kind, attempt.request.tenant, attempt.model
                lasted: Duration = attempt.ended_at - attempt.started_at
                self.slot_time[key] += lasted * attempt.inputs

    def on_sampled(self, now: Instant, world: World) -> None:
        """One look."""
        self.look(now, world.scheduler)

    def look(self, now: Instant, scheduler: Scheduler) -> None:
        """At queue and nodes of this core."""
        state, series = scheduler.state, self.series
        waiting = jobs = 0
        oldest = now
        for pool in state.pools.values():
            waiting += pool.queue.interactive
            jobs += pool.queue.jobs
            head = pool.queue.oldest()
            if head is not None:
                oldest = min(oldest, head.queued_at)
        in_flight = slots = ready = 0
        for node in state.nodes.values():
            if node.alive:
                ready += node.availability is NodeAvailability.ACTIVE and node.connected
                for engine in node.engines.values():
                    in_flight += engine.in_flight_inputs
                    slots += engine.spec.slots
        series.at.append(now)
        series.waiting.append(waiting)
        series.jobs.append(jobs)
        series.in_flight.append(in_flight)
        series.slots.append(slots)
        series.ready.append(ready)
        series.oldest.append(now - oldest)
