"""What does the world know of a request that the core must not? It is `Request.context`."""

from __future__ import annotations

from scheduler_service.core.types import Instant
from simulator.workload.arrival import Arrival


class Ticket:
    """The caller's side of one request."""

    __slots__ = ("arrival", "first_output_at")

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.first_output_at: Instant = -1  # the first of it that its caller got; -1: nothing yet
