"""What does an agent get of a request? Its own bytes, spliced in whole, and what was decided."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from batchyard.v1 import node_service_pb2 as pb
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.types import NEVER, SECOND, Attempt, Duration, Instant, Request
from scheduler_service.rpc.ports import Entry, Tracer
from scheduler_service.rpc.status import uint32
from service_kit.wire_write import field, tag

Bake = Callable[[Attempt], bytes]  # makes the cookie of a dispatch

log = logging.getLogger(__name__)

COOKIE_VERSION: Final = 1
COOKIE_BYTES: Final = 256
TEXT, REASONING = 0, 1  # channels

_Item: Final = wire_pb2.PackedDispatchItem
_REQUEST: Final = tag(_Item.REQUEST_FIELD_NUMBER)
_REQUEST_ID: Final = tag(_Item.REQUEST_ID_FIELD_NUMBER)
_TRACE: Final = tag(_Item.TRACE_FIELD_NUMBER)
_CONTINUATION: Final = tag(_Item.CONTINUATION_FIELD_NUMBER)
_COOKIE: Final = tag(_Item.COOKIE_FIELD_NUMBER)


class ItemWriter:
    """Writes attempts as serialised DispatchItems. What one has in common with the one before is
    written once, and the request goes in as it came.
    """

    def __init__(self, tracer: Tracer, bake: Bake | None = None) -> None:
        self._tracer = tracer
        self._bake = bake
        self._own = wire_pb2.PackedDispatchItem()  # numbers alone: filled anew, it does not grow
        self._alike: tuple[int, ...] = ()  # what the head says, and
        self._tenant = ""
        self._head = b""

    def write(self, attempt: Attempt, now: Instant) -> bytes:
        """The attempt as a serialised DispatchItem.

        Never fails: an item that cannot be built whole goes without its request, so that the agent
        answers for it and the count of sent items stays true.
        """
        try:
            return self._write(attempt, now)
        except Exception:  # an edge's fault must not stop the writer
            log.exception(
                "item %d cannot be built; it is sent empty",
                attempt.dispatch_id,
                extra={"event": "item_failed", "dispatch_id": attempt.dispatch_id},
            )
            return _Item(dispatch_id=attempt.dispatch_id).SerializeToString()

    def _write(self, attempt: Attempt, now: Instant) -> bytes:
        request = attempt.request
        remaining = -1 if request.deadline >= NEVER else max(0, request.deadline - now)
        alike = (
            attempt.number, request.request_class, request.priority, remaining, attempt.inputs,
            attempt.tokens, attempt.engine.credit_tokens is not None, request.stream,
        )  # fmt: skip
        if alike != self._alike or request.tenant != self._tenant:
            self._alike, self._tenant = alike, request.tenant
            self._head = self._write_head(attempt, remaining)
        own = self._own
        own.dispatch_id, own.output_id = attempt.dispatch_id, attempt.output_id
        written = self._head + own.SerializeToString()
        written += field(_REQUEST_ID, request.request_id.encode())
        if self._bake is not None:
            written += field(_COOKIE, self._bake(attempt))
        entry: Entry | None = request.context
        if entry is None:  # it ended meanwhile: its cancel is right behind
            return written
        written += field(_REQUEST, entry.request_bytes)
        trace = self._tracer.attempt_context(attempt)
        if trace is not None:
            written += field(_TRACE, trace.SerializeToString())
        if request.continuing:
            continuation = pb.Continuation()
            _continue(continuation, request, entry)
            written += field(_CONTINUATION, continuation.SerializeToString())
        return written

    def _write_head(self, attempt: Attempt, remaining: Duration) -> bytes:
        request = attempt.request
        head = _Item(
            attempt=attempt.number,
            tenant=request.tenant,
            request_class=request.request_class,  # type: ignore[arg-type]  # the same numbers
            priority=request.priority,
            stream=request.stream,
        )
        head.charge.inputs = attempt.inputs
        if attempt.engine.credit_tokens is not None:
            head.charge.tokens = attempt.tokens
        if remaining >= 0:
            head.remaining.seconds, head.remaining.nanos = divmod(remaining, SECOND)
        if self._bake is None:
            head.cookie = cookie(request)
        return head.SerializeToString()


def _continue(continuation: pb.Continuation, request: Request, entry: Entry) -> None:
    """What the client has already, to go on from."""
    output = request.output
    assert output is not None
    continuation.text = entry.delivered_text(TEXT)
    continuation.reasoning = entry.delivered_text(REASONING)
    continuation.token_ids.extend(entry.delivered_token_ids())
    continuation.output_tokens = uint32(output.tokens)


def cookie(request: Request) -> bytes:
    """What a restarted scheduler needs to adopt the item, beside what RunningItem says.

    Version 1: the version, the class and the priority in a byte each, then the tenant in UTF-8
    (left out where it is too long; RunningItem has it, too).
    """
    return _cookie(request.request_class, request.priority, request.tenant)


@lru_cache(maxsize=1024)
def _cookie(request_class: int, priority: int, tenant: str) -> bytes:
    head = bytes((COOKIE_VERSION, request_class, priority))
    name = tenant.encode()
    return head + name if len(head) + len(name) <= COOKIE_BYTES else head
