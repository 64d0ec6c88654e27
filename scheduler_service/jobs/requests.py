"""How does a stored item become a request of the core?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import RequestClass, ResumeMode
from scheduler_service.core.types import NEVER, Instant
from scheduler_service.jobs.kept import ItemEnd, ItemKey, ItemResult, StoredItem, Used
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.entries import Entry

_STREAMED: Final = frozenset({"text", "chat"})
_END: Final = {
    types_pb2.FINISH_REASON_CANCELLED: ItemEnd.CANCELLED,
    types_pb2.FINISH_REASON_EXPIRED: ItemEnd.EXPIRED,
}


class ItemCaller:
    """Waits for an item's result, on behalf of the store."""

    streams = False

    def __init__(self, taken: Taken, on_end: OnEnd) -> None:
        self._taken = taken
        self._on_end = on_end

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Not asked for."""

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Not asked for."""

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """Not asked for: the entry keeps it."""

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Not asked for."""

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end of this try."""
        self._on_end(self._taken, result, error)


@dataclass(slots=True, eq=False)
class Taken:
    """An item that is out of the store's hands until its result is stored."""

    item: StoredItem
    entry: Entry | None = None  # while it is in the core
    deadline: Instant = NEVER  # from when it was first fed in
    not_before: Instant = 0  # of its next try; 0: it was not put back
    tries: int = 0  # that came to nothing for no fault of its own
    faults: int = 0  # of them, those that a fault of the scheduler itself ended
    preemptions: int = 0  # of those tries


OnEnd = Any  # Callable[[Taken, bytes, types_pb2.Error | None], None]


def make_entry(
    taken: Taken,
    converter: Converter,
    clock: Clock,
    *,
    rid: int,
    due: Instant,
    on_end: OnEnd,
    quarantine: Quarantine | None = None,
) -> Entry:
    """The item as a request of class JOB.

    Nobody waits at a screen for it, so the defaults of its task type for `timeout`, `max_wait` and
    `degrade` do not apply: those are for calls. If its output cannot go on after a loss it begins
    anew, since nobody has seen any of it.

    Raises:
        Refused: it is in quarantine, or the limits have changed since it was stored.
    """
    item, now = taken.item, clock.now()
    parsed = converter.convert(item.request, rid=rid, now=now, rpc_deadline=NEVER, stream=False)
    request, given = parsed.request, parsed.given
    request.request_id = item.request_id
    request.tenant = item.tenant
    if quarantine is not None and quarantine.alike:
        quarantine.check(parsed)
    request.request_class = RequestClass.JOB
    request.stream = request.continuable and streams(
        inference_pb2.InferenceRequest.FromString(item.request)
    )
    if "timeout" not in given:
        request.deadline = NEVER
    if "max_wait" not in given:
        request.max_wait = NEVER
    if "degrade" not in given:
        request.degrade = ()
    if request.resume_mode is ResumeMode.DEFAULT:
        request.resume_mode = ResumeMode.RESTART
    request.deadline = min(request.deadline, due)
    if taken.not_before:
        request.deadline = taken.deadline
    taken.deadline = request.deadline
    entry = Entry(request, item.request, clock)
    request.context = entry
    if parsed.labels:
        entry.labels = dict(parsed.labels)
    entry.callers = (ItemCaller(taken, on_end),)
    taken.entry = entry
    return entry


def streams(message: inference_pb2.InferenceRequest) -> bool:
    """Whether its output is fetched as it comes, so that it can go on elsewhere after it made room
    or lost its node. Where deltas would not carry all of the result, it is not.
    """
    kind = message.WhichOneof("input")
    plain = kind in _STREAMED and not message.HasField("output")
    return plain and not (kind == "chat" and message.chat.tools_json)


def result_of(key: ItemKey, result: bytes, preemptions: int) -> ItemResult:
    """What is stored of an end. `preemptions`: of tries before the last."""
    message = inference_pb2.InferenceResult.FromString(result)
    end = ItemEnd.SUCCEEDED
    if message.HasField("error"):
        end = _END.get(message.finish_reason, ItemEnd.FAILED)
    usage = message.usage
    used = Used(
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_input_tokens,
        usage.reasoning_output_tokens,
        usage.wasted_output_tokens,
    )
    dispatched = message.timings.dispatch_time
    started_ns = dispatched.seconds * 1_000_000_000 + dispatched.nanos
    return ItemResult(key, end, result, preemptions + message.preemptions, started_ns, used)
