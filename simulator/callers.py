"""How do arrivals become requests? What the live edge would fill in is filled in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import ResumeMode
from scheduler_service.core.types import NEVER, Duration, Request
from simulator.tickets import Ticket
from simulator.workload.arrival import Arrival
from simulator.world import World

PREFIX_BLOCKS = 4
Predict = Callable[[Arrival, int], int]  # (arrival, rid) -> expected output tokens; 0: unknown


def unknown(_arrival: Arrival, _rid: int) -> int:
    """Nothing is said of the output's length."""
    return 0


def _prefix(arrival: Arrival) -> str:
    """What prompts with the same beginning have in common: their first blocks."""
    return ",".join(map(str, arrival.blocks[:PREFIX_BLOCKS]))


@dataclass(kw_only=True)
class Terms:
    """What callers ask for where an arrival does not say."""

    timeout: Duration = NEVER
    timeouts: Mapping[int, Duration] = field(default_factory=dict)  # by priority, before `timeout`
    max_wait: Duration = NEVER
    degrade: tuple[str, ...] = ()
    degrade_after: Duration = NEVER
    max_attempts: int = 3
    resume: ResumeMode = ResumeMode.DEFAULT
    stream: bool = False  # its output goes through the relay (nodes with the agent's core)
    predict: Predict = unknown


class Callers:
    """Submits arrivals, in order of time, one look ahead."""

    def __init__(
        self, world: World, arrivals: Iterable[Arrival], terms: Terms | None = None
    ) -> None:
        self._world = world
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self._terms = terms or Terms()
        self.submitted = 0
        world.sources += 1
        self._wait_for(next(self._arrivals, None))

    def _wait_for(self, arrival: Arrival | None) -> None:
        if arrival is None:
            self._world.sources -= 1
        else:
            self._world.agenda.at(arrival.at, self._arrive, arrival)

    def _arrive(self, first: Arrival) -> None:
        """Those of one instant come together."""
        requests = [self.request(first)]
        following = next(self._arrivals, None)
        while following is not None and following.at <= first.at:
            requests.append(self.request(following))
            following = next(self._arrivals, None)
        self._world.submit(requests)
        self._wait_for(following)

    def request(self, arrival: Arrival) -> Request:
        """The arrival as the live edge would hand it to the core."""
        world, terms = self._world, self._terms
        rid = world.new_rid()
        self.submitted += 1
        timeout = arrival.timeout
        if timeout >= NEVER:
            timeout = terms.timeouts.get(arrival.priority, terms.timeout)
        if arrival.cancel_after < NEVER:
            world.agenda.at(world.now + arrival.cancel_after, self._leave, rid)
        return Request(
            rid,
            f"r{rid}",
            arrival.model,
            arrival.priority,
            arrival.at,
            arrival.tenant,
            task_type=arrival.task_type,
            request_class=arrival.request_class,
            deadline=arrival.at + timeout if timeout < NEVER else NEVER,
            max_wait=min(arrival.max_wait, terms.max_wait),
            degrade=arrival.degrade or terms.degrade,
            degrade_after=terms.degrade_after,
            max_attempts=terms.max_attempts,
            resume_mode=terms.resume,
            continuable=arrival.continuable,
            stream=terms.stream,
            inputs=arrival.inputs,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=terms.predict(arrival, rid),
            size_bytes=4 * arrival.prompt_tokens,
            affinity_key=arrival.session or _prefix(arrival),
            context=Ticket(arrival),
        )

    def _leave(self, rid: int) -> None:
        """The caller hangs up; after its outcome that says nothing to the core."""
        self._world.post(ev.RequestsCancelled([rid]))
