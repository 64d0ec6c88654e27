"""Who waits for which request, and what have they been sent?

An `Entry` is one request at the edge: its bytes (spliced into dispatches), its callers, and what
they have been sent. It is the core's `Request.context` and the sink of its relay output. Several
callers share an entry when they name the same request id with the same body; the work is cancelled
when the last one leaves (after `detach_grace`, where one was asked for).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from batchyard.v1 import scheduler_service_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import AcceptRequest, FinishRequest
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import Attempt, Duration, Instant, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.delivered import Delivered, missing
from scheduler_service.rpc.results import ResultBuilder, failed, text_outputs, too_large
from scheduler_service.security.quotas import Reservation

log = logging.getLogger(__name__)

Key = tuple[str, str, str]  # principal, tenant, request id


class Written(Protocol):
    """Is told of the writing of a sampled request's stream."""

    writing: bool  # it has begun, and `delivered` will be called

    def delivered(self, clock: Clock, messages: int, stalled_ns: int) -> None:
        """It has ended. `messages`: with output; `stalled_ns`: that writing waited."""


class Caller(Protocol):
    """One call that waits for a request. Calls never wait; the caller's stream sends."""

    streams: bool  # whether it wants output as it comes

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """It is in the queue."""

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """A node runs it; `restarted` voids what was delivered."""

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """New output."""

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """A rare row of output."""

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end: a serialised InferenceResult. Nothing follows."""


_SUCCEEDED: Final = Outcome.SUCCEEDED  # a look-up costs 70 ns on every request's path
# Most requests wait without labels and without output: these stand for all of them.
_NO_LABELS: Final[Mapping[str, str]] = {}
_NOTHING: Final[Mapping[tuple[int, int], Delivered]] = {}


class _Ahead:
    """A caller that has the beginning of the output that comes again."""

    __slots__ = ("caller", "ends")

    def __init__(self, caller: Caller, have: scheduler_service_pb2.AttachPoint) -> None:
        self.caller = caller
        self.ends = {(o.choice_index, o.channel): o.offset for o in have.offsets}


class Entry:
    """One request at the edge."""

    __slots__ = (
        "_announced",
        "_behind",
        "_clock",
        "_delivered",
        "_other",
        "body_hash",
        "callers",
        "closed",
        "deltas",
        "detach",
        "detach_timer",
        "extras",
        "first_output_at",
        "key",
        "labels",
        "request",
        "request_bytes",
        "reservation",
        "sampled",
        "span",
        "trace_id",
        "traceparent",
        "tracestate",
    )

    def __init__(self, request: Request, request_bytes: bytes, clock: Clock) -> None:
        self.request = request
        self.request_bytes = request_bytes
        self.callers: tuple[Caller, ...] = ()
        self.labels = _NO_LABELS
        self.traceparent = ""
        self.tracestate = ""
        self.trace_id = ""
        self.sampled = False
        self.span: Written | None = None  # of a sampled request: the tracer's own
        self.key: Key | None = None
        self.closed = False  # nobody joins it any more
        self.reservation: Reservation | None = None  # None: its tenant has no limits
        self.detach: Duration = 0  # the longest grace that a caller asked for
        self.detach_timer: asyncio.TimerHandle | None = None
        self.first_output_at: Instant = 0
        self.deltas = 0
        self.extras: Sequence[types_pb2.DeltaExtra] = ()
        self._clock = clock
        self._announced: Attempt | None = None
        self._delivered: Mapping[tuple[int, int], Delivered] = _NOTHING  # by choice and channel
        self._other: tuple[tuple[Caller, scheduler_service_pb2.AttachPoint], ...] = ()
        self._behind: Sequence[_Ahead] = ()  # callers that have some of what comes again
        self.body_hash = b""  # of one whose bytes are not here

    def accept(self, command: AcceptRequest) -> None:
        """Tell the streaming callers that it waits."""
        for caller in self.callers:
            if caller.streams:
                message = self._accepted()
                message.queue_position = command.ahead
                if command.estimated_wait:
                    message.estimated_wait.CopyFrom(status.duration(command.estimated_wait))
                caller.accepted(message)

    def _accepted(self) -> scheduler_service_pb2.Accepted:
        message = scheduler_service_pb2.Accepted()
        message.request_id = self.request.request_id
        wall = self._clock.wall_ns(self.request.received_at)
        message.receive_time.seconds, message.receive_time.nanos = divmod(wall, 1_000_000_000)
        return message

    def begin(self, attempt: Attempt, *, restarted: bool = False) -> None:
        """Announce the attempt's node to streaming callers, once."""
        if attempt is self._announced:
            return
        if self._announced is not None and self._announced.output_id != attempt.output_id:
            restarted = True
            self._delivered = _NOTHING
            self.extras = ()
            self._behind = ()
        self._announced = attempt
        other, self._other = self._other, ()
        void = []
        for caller, have in other:
            if have.output_id == attempt.output_id:
                self._behind = (*self._behind, _Ahead(caller, have))
            else:
                void.append(caller)
        for caller in self.callers:
            if caller.streams:
                caller.started(self._started(attempt, restarted or caller in void))

    def _started(self, attempt: Attempt, restarted: bool) -> scheduler_service_pb2.Started:
        message = scheduler_service_pb2.Started()
        message.attempt = attempt.number
        message.node_id = attempt.engine.node.node_id
        message.model = attempt.model
        message.output_id = attempt.output_id
        if self.request.degraded:
            message.degraded = True
        if restarted:
            message.restarted = True
        return message

    def deliver(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """New output, accepted by the relay and trimmed to what is new."""
        announced, output = self._announced, self.request.output
        if announced is None or output is None or announced.dispatch_id != output.speaker:
            self._announce_speaker()
        if not self.first_output_at:
            self.first_output_at = self._clock.now()
        self.deltas += 1
        delivered = self._delivered.get((choice, channel))
        if delivered is None:
            delivered = Delivered()
            self._delivered = {**self._delivered, (choice, channel): delivered}
        delivered.texts.append(text)
        if token_ids:
            delivered.ids.append((offset, token_ids))
        if self._behind:
            self._deliver_what_is_new(choice, channel, offset, text, tokens, token_ids)
            return
        for caller in self.callers:
            if caller.streams:
                caller.delta(choice, channel, offset, text, tokens, token_ids)

    def _deliver_what_is_new(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """Some callers have the beginning already."""
        ends = {id(a.caller): a.ends.get((choice, channel), 0) for a in self._behind}
        for caller in self.callers:
            if not caller.streams:
                continue
            have = ends.get(id(caller), 0)
            if have <= offset:
                caller.delta(choice, channel, offset, text, tokens, token_ids)
            elif have < offset + len(text.encode()):
                rest = text.encode()[have - offset :].decode(errors="ignore")
                caller.delta(choice, channel, have, rest, 0, ())

    def deliver_extra(self, extra: types_pb2.DeltaExtra) -> None:
        """A rare row; kept for callers that attach later, but for totals, which newer ones void."""
        self._announce_speaker()
        if extra.HasField("tool_call") or extra.logprobs:
            kept = types_pb2.DeltaExtra()
            kept.CopyFrom(extra)  # a part of a message would keep all of it in memory
            if isinstance(self.extras, list):
                self.extras.append(kept)
            else:
                self.extras = [kept]
        key = extra.choice_index, extra.channel
        ends = {id(a.caller): a.ends.get(key, 0) for a in self._behind}
        for caller in self.callers:
            if caller.streams and (not ends or extra.offset >= ends.get(id(caller), 0)):
                caller.extra(extra)

    def _announce_speaker(self) -> None:
        """Whoever speaks has been announced before."""
        announced, output = self._announced, self.request.output
        if output is not None and (announced is None or announced.dispatch_id != output.speaker):
            speaker = self.request.live.get(output.speaker)
            if speaker is not None:
                self.begin(speaker)

    def delivered_text(self, channel: int) -> str:
        """What callers have been sent of choice 0 on that channel."""
        delivered = self._delivered.get((0, channel))
        return "" if delivered is None else "".join(delivered.texts)

    def delivered_token_ids(self) -> Sequence[int]:
        """Ids of choice 0 that callers have been sent, where they asked for ids."""
        delivered = self._delivered.get((0, 0))
        return () if delivered is None else delivered.all_ids()

    def expect(self, caller: Caller, have: scheduler_service_pb2.AttachPoint) -> None:
        """A caller comes before any output. What it has, as of a scheduler before, is void, unless
        it is the very output that begins: of work that this one adopts.
        """
        if have.output_id:
            self._other = (*self._other, (caller, have))

    def attach(self, caller: Caller, have: scheduler_service_pb2.AttachPoint | None) -> None:
        """Join a request in flight; a streaming caller gets what it lacks, then the rest.

        Raises:
            Refused: `have` is not a point of this output.
        """
        attempt = self._announced
        same = have is not None and attempt is not None and have.output_id == attempt.output_id
        offsets = have.offsets if have is not None and same else ()
        if self.body_hash and have is not None and same:  # its output comes again
            rows = missing(self._delivered, self._within(caller, have))
        else:
            rows = missing(self._delivered, offsets)
        self.callers = (*self.callers, caller)
        if self.detach_timer is not None:
            self.detach_timer.cancel()
            self.detach_timer = None
        if not caller.streams:
            return
        message = self._accepted()
        message.attached = True
        caller.accepted(message)
        if attempt is None:
            if have is not None:
                self.expect(caller, have)
            return
        had_other = have is not None and have.output_id != 0 and not same
        caller.started(self._started(attempt, had_other))
        known = {(o.choice_index, o.channel): o.offset for o in offsets}
        for extra in self.extras:
            if extra.offset >= known.get((extra.choice_index, extra.channel), 0):
                caller.extra(extra)
        for row in rows:
            caller.delta(*row)

    def _within(
        self, caller: Caller, have: scheduler_service_pb2.AttachPoint
    ) -> list[types_pb2.StreamOffset]:
        """Of what the caller has, that which is here again; the rest it will not be sent twice."""
        self._behind = (*self._behind, _Ahead(caller, have))
        points = []
        for point in have.offsets:
            sent = self._delivered.get((point.choice_index, point.channel))
            here = sum(len(text.encode()) for text in sent.texts) if sent is not None else 0
            points.append(
                types_pb2.StreamOffset(
                    choice_index=point.choice_index,
                    channel=point.channel,
                    offset=min(point.offset, here),
                )
            )
        return points

    def leave(self, caller: Caller) -> None:
        """The caller waits no more. The tuple is new, for this may happen while it is walked."""
        self.callers = tuple([other for other in self.callers if other is not caller])

    def end(self, command: FinishRequest, results: ResultBuilder) -> bytes:
        """Give every caller the result; returns it as one who did not stream would get it."""
        callers, self.callers = self.callers, ()
        try:
            streamed, whole, error = self._results(command, results)
        except Exception:  # ours: the callers must hear of it all the same
            log.exception(
                "the result of request %s cannot be built",
                self.request.request_id,
                extra={
                    "event": "result_failed",
                    "request_id": self.request.request_id,
                    "trace_id": self.trace_id,
                },
            )
            error = status.error(Reason.INTERNAL, "the result cannot be built; this is logged")
            streamed = whole = failed(error, self.request.request_id)
        whole_error = error
        if len(whole) > results.most:
            whole_error = too_large(len(whole), results.most)
            short = failed(whole_error, self.request.request_id)
            if streamed is whole:
                streamed, error = short, whole_error
            whole = short
        for caller in callers:
            try:
                if caller.streams:
                    caller.finish(streamed, error)
                else:
                    caller.finish(whole, whole_error)
            except Exception:  # ours: the other callers must hear of it all the same
                log.exception(
                    "a caller of request %s was not told",
                    self.request.request_id,
                    extra={
                        "event": "caller_not_told",
                        "request_id": self.request.request_id,
                        "trace_id": self.trace_id,
                    },
                )
        return whole

    def _results(
        self, command: FinishRequest, results: ResultBuilder
    ) -> tuple[bytes, bytes, types_pb2.Error | None]:
        """The result for who has had its output as deltas, the one for who has not, the error."""
        if not (self._delivered or self.labels) and (
            plain := results.plain(command, self.trace_id)
        ):
            return plain, plain, None
        built = results.build(command, first_output_at=self.first_output_at, trace_id=self.trace_id)
        if self.labels:
            for key, value in self.labels.items():
                built.labels[key] = value
        error = None if command.outcome is _SUCCEEDED else built.error
        payload = command.payload
        streamed = built.SerializeToString() if self._delivered else b""
        outputs = payload.outputs if payload is not None else None
        if self._delivered and (not outputs or self._is_of_its_output()):
            built.outputs.extend(text_outputs(self._delivered, built.finish_reason))
        elif outputs:
            built.outputs.extend(outputs)
        whole = built.SerializeToString()
        return streamed or whole, whole, error

    def _is_of_its_output(self) -> bool:
        """Whether what was delivered belongs to the output that ends, whoever wrote it: the last
        attempt may have had nothing to add, and then its node sends an empty one.
        """
        output, announced = self.request.output, self._announced
        return (
            output is not None and announced is not None and announced.output_id == output.output_id
        )
