"""What can clients call? SchedulerService: decode, hand in, await the outcome; no decisions here.

All three ways in (Generate, GenerateStream, Multiplex) take the same path, `Intake.open`. Messages
arrive as bytes and are parsed call by call, so that a bad one fails alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.state import State
from scheduler_service.rpc import models, status
from scheduler_service.rpc.convert import parse
from scheduler_service.rpc.entries import Entry, Written
from scheduler_service.rpc.intake import (
    FEATURES,
    Context,
    Intake,
    Opening,
    principal_of,
    tracing_of,
)
from scheduler_service.rpc.jobs import JobPort
from scheduler_service.rpc.multiplex import MultiplexStream
from scheduler_service.rpc.streams import SingleWriter
from scheduler_service.rpc.traced_calls import BeginCall, note_refused, untraced
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.permits import tenant_of

log = logging.getLogger(__name__)

SERVICE: Final = "batchyard.v1.SchedulerService"
_YEAR_S: Final = 365 * 24 * 3600
_JOBS: Final = ("CreateJob", "AppendJob", "GetJob", "ListJobs", "ListJobResults", "CancelJob")
GONE_S: Final = 0.05  # for gRPC to say that a call ended with its connection
M = TypeVar("M", bound=Message)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this scheduler is."""

    version: str
    instance_id: str
    cluster_id: str
    term: int


class _UnaryCaller:
    """Waits for the result alone."""

    streams = False

    def __init__(self) -> None:
        self.done: asyncio.Future[tuple[bytes, types_pb2.Error | None]] = (
            asyncio.get_running_loop().create_future()
        )

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Not asked for."""

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Not asked for."""

    def delta(self, *_delta: Any) -> None:
        """Not asked for."""

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Not asked for."""

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end; the client may have gone a moment ago."""
        if not self.done.done():
            self.done.set_result((result, error))


class SchedulerPort:
    """SchedulerService."""

    def __init__(
        self,
        *,
        intake: Intake,
        identity: Identity,
        state: Callable[[], State],
        jobs: JobPort | None = None,
        begin_call: BeginCall = untraced,
    ) -> None:
        """`jobs`: None where the scheduler has no folder to keep them in."""
        self._jobs = jobs
        self._intake = intake
        self._book = intake.book
        self._clock = intake.clock
        self._identity = identity
        self._state = state
        self._begin_call = begin_call
        self._streams: dict[MultiplexStream, None] = {}

    def handlers(self) -> grpc.GenericRpcHandler:
        """Everything of the service, on raw bytes."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        pb = scheduler_service_pb2
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Generate": unary(guarded(self.generate)),
            "GenerateStream": stream(guarded(self.generate_stream)),
            "Multiplex": grpc.stream_stream_rpc_method_handler(guarded(self.multiplex)),
            "CancelRequests": unary(typed(pb.CancelRequestsRequest, self.cancel_requests)),
            "ListModels": unary(typed(pb.ListModelsRequest, self.list_models)),
            "GetServerInfo": unary(typed(pb.GetServerInfoRequest, self.get_server_info)),
            **self._job_methods(),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _job_methods(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        pb, jobs = scheduler_service_pb2, self._jobs
        if jobs is None:
            return {name: unary(_without_jobs) for name in _JOBS} | {
                "WatchJob": stream(_without_jobs)
            }
        return {
            "CreateJob": unary(typed(pb.CreateJobRequest, jobs.create_job)),
            "AppendJob": unary(typed(pb.AppendJobRequest, jobs.append_job)),
            "GetJob": unary(typed(pb.GetJobRequest, jobs.get_job)),
            "ListJobs": unary(typed(pb.ListJobsRequest, jobs.list_jobs)),
            "ListJobResults": unary(typed(pb.ListJobResultsRequest, jobs.list_job_results)),
            "WatchJob": stream(guarded(jobs.watch_job)),
            "CancelJob": unary(typed(pb.CancelJobRequest, jobs.cancel_job)),
        }

    async def generate(self, data: bytes, context: Context) -> bytes:
        """One request, one complete answer."""
        caller = _UnaryCaller()
        try:
            entry = self._intake.open(self._opening("Generate", data, context), caller)
        except Refused as refused:
            note_refused(self._begin_call, "Generate", context, refused.error)
            await status.abort_with(context, refused.error)
        try:
            result, error = await caller.done
        finally:
            if entry is not None:
                self._book.leave(entry, caller)  # does nothing once it has ended
        if error is not None:
            parsed = inference_pb2.InferenceResult.FromString(result)
            await status.abort_with(context, error, parsed)
        # On the wire a GenerateResponse is its result in field 1, as this twin's request is.
        return wire_pb2.PackedGenerateRequest(request=result).SerializeToString()

    async def generate_stream(self, data: bytes, context: Context) -> None:
        """One request, its output as it comes."""
        entry: Entry | None = None

        def cut_off() -> None:
            if entry is not None:
                why = "its output was not read in time"
                self._book.give_up(entry, writer, Reason.CLIENT_TOO_SLOW, why)

        writer = SingleWriter(self._intake.limits.max_output_buffer, cut_off)
        try:
            entry = self._intake.open(self._opening("GenerateStream", data, context), writer)
        except Refused as refused:
            note_refused(self._begin_call, "GenerateStream", context, refused.error)
            await status.abort_with(context, refused.error)
        if writer.cut:  # by what it lacked of a request in flight
            cut_off()
        try:
            if entry is not None and entry.span is not None and not entry.span.writing:
                await self._write_watched(writer, context, entry.span)
            else:
                await writer.run(context.write)
        finally:
            if entry is not None:
                self._book.leave(entry, writer)
        if writer.error is not None:
            await status.abort_with(context, writer.error)

    async def _write_watched(self, writer: SingleWriter, context: Context, watch: Written) -> None:
        """The stream of a sampled request: how long did writing wait for its reader?"""
        stalled = 0

        async def write(message: bytes) -> None:
            nonlocal stalled
            began = self._clock.now()
            await context.write(message)
            stalled += self._clock.now() - began

        watch.writing = True
        try:
            await writer.run(write)
        finally:
            watch.delivered(self._clock, writer.messages, stalled)

    async def multiplex(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Many requests on one stream, answers in any order."""
        stream = MultiplexStream(self._intake)
        self._streams[stream] = None
        try:
            await stream.serve(requests, context)
        finally:
            del self._streams[stream]

    def _opening(self, method: str, data: bytes, context: Context) -> Opening:
        """Read a GenerateRequest or GenerateStreamRequest, and the RPC's own deadline."""
        packed = parse(wire_pb2.PackedGenerateRequest, data)
        opening = Opening(packed.request, principal_of(context), tracing_of(context), method)
        opening.peer = context.peer
        remaining = context.time_remaining()
        if remaining is not None and remaining < _YEAR_S:  # type: ignore[redundant-expr]
            opening.rpc_deadline = self._clock.now() + max(0, int(remaining * 1e9))
        opening.detach_grace = self._intake.grace(packed.detach_grace)
        if packed.HasField("attach"):
            opening.attach = packed.attach
        return opening

    def go_away(self) -> None:
        """Tell every Multiplex stream that this server is stopping."""
        for stream in self._streams:
            stream.go_away()

    async def cancel_requests(
        self, message: scheduler_service_pb2.CancelRequestsRequest, context: Context
    ) -> scheduler_service_pb2.CancelRequestsResponse:
        """Cancel by request id; unknown and finished ids are ignored."""
        tenant = tenant_of(principal_of(context), message.tenant)
        if not 1 <= len(message.request_ids) <= 1000:
            raise Refused("1..1000 request ids", field="request_ids")
        if len(message.reason) > 256:
            raise Refused("at most 256 characters", field="reason")
        found = []
        for request_id in message.request_ids:
            entry = self._book.by_request_id(tenant, request_id)
            if entry is not None:
                text = message.reason or "cancelled by its caller"
                self._book.cancel(entry, Reason.CANCELLED_BY_CLIENT, text)
                found.append(request_id)
        return scheduler_service_pb2.CancelRequestsResponse(request_ids=found)

    async def list_models(
        self, message: scheduler_service_pb2.ListModelsRequest, context: Context
    ) -> scheduler_service_pb2.ListModelsResponse:
        """Public models over all nodes, by name."""
        allowed = principal_of(context).models
        return models.list_page(self._state(), message, allowed)

    async def get_server_info(
        self, message: scheduler_service_pb2.GetServerInfoRequest, context: Context
    ) -> scheduler_service_pb2.GetServerInfoResponse:
        """Versions, features that work, limits."""
        del message
        info = scheduler_service_pb2.GetServerInfoResponse(
            version=self._identity.version,
            instance_id=self._identity.instance_id,
            cluster_id=self._identity.cluster_id,
            term=self._identity.term,
            protocol_version=1,
            features=FEATURES if self._jobs is None else (*FEATURES, "jobs"),
            limits=self._intake.limits_message(),
            tenants=principal_of(context).tenants or (),
        )
        info.server_time.CopyFrom(self._clock.timestamp(self._clock.now()))
        return info


def guarded(method: Callable[[Any, Context], Awaitable[R]]) -> Callable[[Any, Context], Any]:
    """A handler whose own faults are INTERNAL, and to which a client that has gone is no fault."""

    async def handler(request: Any, context: Context) -> R:
        try:
            return await method(request, context)
        except grpc.aio.AbortError:
            raise
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as broken:
            log.debug("the call of %s broke: %r", context.peer(), broken)
            # Were this to return before gRPC cancels it, gRPC would fail to send a status, and say
            # so in the log.
            await asyncio.sleep(GONE_S)
            raise
        except Exception:
            log.exception("a call failed", extra={"event": "call_failed"})
            why = "a fault of the scheduler itself; it is logged"
            await status.abort(context, Reason.INTERNAL, why)

    return handler


def typed(
    kind: type[M], method: Callable[[M, Context], Awaitable[Message]]
) -> Callable[[bytes, Context], Awaitable[bytes]]:
    """A unary handler on bytes whose bad input is a typed error naming the field."""

    async def handler(data: bytes, context: Context) -> bytes:
        try:
            answer = await method(parse(kind, data), context)
        except Refused as refused:
            await status.abort_with(context, refused.error)
        return answer.SerializeToString()

    return guarded(handler)


async def _without_jobs(data: bytes, context: Context) -> None:
    del data
    await status.abort(
        context,
        Reason.UNSUPPORTED_FEATURE,
        "this scheduler keeps no jobs: it has no state_dir to keep them in",
        metadata={"feature": "jobs"},
    )
