"""After partial output, how may a request go on?"""

from __future__ import annotations

from scheduler_service.core.relay import Output
from scheduler_service.core.state import State
from scheduler_service.core.types import Request


def can_continue(state: State, request: Request) -> bool:
    """One unguided choice of text, and a model that goes on from prompt plus output."""
    assert request.output is not None
    plain = all(
        choice == 0 and channel in (0, 1) for choice, channel, _ in request.output.positions()
    )
    engines = state.pools[request.served_model].engines
    resumable = any(e.models[request.served_model].resumable for e in engines)
    return request.continuable and plain and (resumable or not engines)


def restart(state: State, request: Request) -> None:
    """A new output from the beginning, where there was one."""
    if request.output is not None:
        request.output = Output(state.new_id(), request.output.sink)
    request.continuing = False
