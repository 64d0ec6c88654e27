"""What do the parts of the edge know of each other?

`effects.py` carries out the core's commands through these; the servicers implement them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from batchyard.v1 import types_pb2
from scheduler_service.core.commands import CloseSession, DrainNode
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Attempt, Batch


class NodeSession(Protocol):
    """One agent's stream, as the effects see it. Calls never wait; the stream's writer sends.

    Registered by (node_id, epoch) in `Effects.sessions` from the agent's Hello to the stream's end.
    """

    def welcome(self, abandon: Sequence[int], adopted: Sequence[int]) -> None:
        """Admit it: send Welcome, with the relay's offsets for the adopted ids."""

    def dispatch(self, batch: Batch) -> None:
        """Send the batch; items are spliced from the requests' own bytes."""

    def cancel(self, dispatch_ids: Sequence[int], reason: Reason) -> None:
        """Ask it to stop these."""

    def acknowledge(self, count: int) -> None:
        """So many more results are dealt with."""

    def drain(self, command: DrainNode) -> None:
        """No new work, finish, give back the rest."""

    def ping(self) -> None:
        """Ask for a sign of life."""

    def close(self, command: CloseSession) -> None:
        """Say goodbye with the reason and end the stream."""


class Entry(Protocol):
    """One request at the edge: its bytes, its callers, what they have been sent.

    It is `Request.context`, and the sink of the request's relay output.
    """

    request_bytes: bytes  # batchyard.v1.InferenceRequest, as the client sent it
    traceparent: str  # of the caller's span; empty: none
    tracestate: str
    sampled: bool  # whether spans are made for this request

    def begin(self, attempt: Attempt, *, restarted: bool = False) -> None:
        """Announce the node to streaming callers, once per attempt."""

    def deliver(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """New output, already accepted by the relay and trimmed to what is new."""

    def deliver_extra(self, extra: types_pb2.DeltaExtra) -> None:
        """A rare row: head of a tool call, log probabilities, interim usage."""

    def delivered_text(self, channel: int) -> str:
        """What callers have been sent of choice 0 on that channel; to continue from."""

    def delivered_token_ids(self) -> Sequence[int]:
        """Likewise, where the request asked for ids."""


class Tracer(Protocol):
    """What the edge needs of telemetry while it sends."""

    def attempt_context(self, attempt: Attempt) -> types_pb2.TraceContext | None:
        """Context of the attempt's span, to be the parent of the agent's; None: not sampled."""

    def batch_context(self, batch: Batch, items: Sequence[bytes]) -> types_pb2.TraceContext | None:
        """Context of the batch's span, for links; None: no member is sampled. `items`: those of it
        that leave now.
        """


class NoTracer:
    """Tracing is off: contexts of unsampled callers still travel on."""

    def attempt_context(self, attempt: Attempt) -> types_pb2.TraceContext | None:
        """The caller's own context, where there is one."""
        entry: Any = attempt.request.context
        if entry is None or not entry.traceparent:
            return None
        return types_pb2.TraceContext(traceparent=entry.traceparent, tracestate=entry.tracestate)

    def batch_context(
        self,
        batch: Batch,  # noqa: ARG002
        items: Sequence[bytes],  # noqa: ARG002
    ) -> types_pb2.TraceContext | None:
        """None."""
        return None
