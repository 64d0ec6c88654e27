"""What is one request of a workload, before anything of the scheduler has touched it?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import NEVER, Duration, Instant


@dataclass(slots=True)
class Arrival:
    """One request as its caller sends it. True lengths are for engines; policies never see them."""

    at: Instant
    prompt_tokens: int = 0
    output_tokens: int = 1  # what the model will really say
    tenant: str = ""
    model: str = "m"
    priority: int = 5
    session: str = ""  # requests of one conversation
    blocks: tuple[int, ...] = ()  # ids of the prompt's prefix blocks, in order
    block_tokens: int = 0  # tokens of a block
    timeout: Duration = NEVER  # the caller's deadline, from `at` on
    max_wait: Duration = NEVER
    cancel_after: Duration = NEVER  # the caller leaves
    service: Duration = 0  # on a node of speed 1, where an engine model takes it as given
    task_type: str = "other"
    request_class: RequestClass = RequestClass.INTERACTIVE
    degrade: tuple[str, ...] = ()
    inputs: int = 1
    continuable: bool = True  # one choice, unguided
