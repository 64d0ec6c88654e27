"""Who waits though its deadline is out of reach? It makes way before it takes a slot in vain.

Theory of operation. Where the admission policy names a share of the expected service time that must
still fit (`least_share`), the timer of a request's deadline is set that much earlier. When it fires
and the request still waits, it gets a smaller model that can make it, or is ended; one that runs is
looked at again in half of the time it has, for it may come back to the queue. The estimate is that
of the moment: where it fell meanwhile, the request waits on.

An estimate that is wrong cannot close a pool for good: who comes to idle slots is dispatched in the
step in which it comes, before any timer, and what it takes corrects the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_service.core import requests
from scheduler_service.core.outcomes import Outcome, Reason, RequestState
from scheduler_service.core.state import State
from scheduler_service.core.types import MILLISECOND, NEVER, Instant, Request

LEAST_PAUSE: Final = 10 * MILLISECOND  # between two looks at a request that runs


def watch(state: State, submitted: Sequence[Request]) -> None:
    """Look at these when they could not make it any more."""
    for request in submitted:
        if request.deadline < NEVER and request.state is not RequestState.FINISHED:
            _look_at(state, request, last_start(state, request))


def rewatch(state: State) -> None:
    """The share is another one now: all open requests are looked at by it, or by their deadlines
    alone where it is 0.
    """
    for request in state.requests.values():
        if request.deadline < NEVER:
            share = state.policies.least_share
            _look_at(state, request, last_start(state, request) if share else request.deadline)


def last_start(state: State, request: Request) -> Instant:
    """The last instant at which its work may begin; its deadline, where nothing is known."""
    expected = state.pools[request.served_model].estimate.expect(request.output_tokens)
    return request.deadline - int(state.policies.least_share * expected)


def on_timer(state: State, request: Request) -> None:
    """Its time to begin has passed, or its deadline."""
    if state.now >= request.deadline:
        requests.expire(state, request)
        return
    if request.state is not RequestState.QUEUED or request.live:
        pause = max(LEAST_PAUSE, (request.deadline - state.now) // 2)
        _look_at(state, request, state.now + pause)
        return
    last = last_start(state, request)
    if last > state.now:
        _look_at(state, request, last)
    elif requests.degrade(state, request, "deadline"):
        _look_at(state, request, max(state.now + LEAST_PAUSE, last_start(state, request)))
    else:
        left = (request.deadline - state.now) // MILLISECOND
        needed = (request.deadline - last) // MILLISECOND
        requests.finish(
            state, request, Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED,
            f"it has {left} ms left and needs {needed} ms at least",
        )  # fmt: skip


def _look_at(state: State, request: Request, at: Instant) -> None:
    state.timers.set(request.rid * 4 + requests.DEADLINE, min(at, request.deadline))
