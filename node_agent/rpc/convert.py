"""What do the scheduler's messages mean to the core, and how does the Hello read on the wire?

Items are parsed one by one: a bad one becomes an item with a fault, its neighbours run. Results
go the other way in `results.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from batchyard.wire.v1 import wire_pb2 as wire
from node_agent.core import Item, ItemState
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.core.items import Fault
from node_agent.engines import interface as engines
from node_agent.rpc import durations
from node_agent.rpc.errors import reason_name
from service_kit import wire_walk

TEXT, REASONING = 0, 1  # channels
_NOWHERE: Mapping[tuple[int, int], int] = {}  # output that begins at its start
CHARGE_FIELD = wire.PackedDispatchItem.CHARGE_FIELD_NUMBER

STATES = {
    ItemState.RECEIVED: node.ITEM_STATE_RECEIVED,
    ItemState.SUBMITTED: node.ITEM_STATE_RECEIVED,
    ItemState.RUNNING: node.ITEM_STATE_RUNNING,
    ItemState.FIRST_OUTPUT: node.ITEM_STATE_FIRST_TOKEN,
    ItemState.FINISHED: node.ITEM_STATE_FINISHED,
}


@dataclass(slots=True)
class Payload:
    """What travels through the core with an item, unread."""

    item: engines.Item
    trace: types.TraceContext | None  # None: not sampled
    batch_trace: types.TraceContext | None


def events(message: wire.PackedConnectResponse) -> list[ev.Event]:
    """What a message means to the core, its parts in the order of their fields."""
    found: list[ev.Event] = []
    if message.results_acked:
        found.append(ev.ResultsAcked(message.results_acked))
    found.extend(batch_event(batch) for batch in message.batches)
    for cancel in message.cancels:
        reason = cancel.reason or types.ERROR_REASON_CANCELLED_BY_CLIENT
        found.append(ev.CancelsReceived(list(cancel.dispatch_ids), reason_name(reason)))
    if message.HasField("drain"):
        found.append(_drain_event(message.drain))
    return found


def _drain_event(drain: node.Drain) -> ev.DrainRequested | ev.DrainLifted:
    if drain.lifted:
        return ev.DrainLifted()
    grace_ns = durations.to_ns(drain.grace) if drain.HasField("grace") else None
    return ev.DrainRequested(
        grace_ns=grace_ns, own=False, terminate=drain.terminate, reason=drain.reason
    )


def welcomed(welcome: node.Welcome) -> ev.Welcomed:
    """The Welcome, as far as the core decides on it."""
    points: dict[int, Mapping[tuple[int, int], int]] = {
        point.dispatch_id: {(o.choice_index, o.channel): o.offset for o in point.offsets}
        for point in welcome.resume_points
    }
    return ev.Welcomed(
        cluster_id=welcome.cluster_id,
        term=welcome.term,
        session_epoch=welcome.session_epoch,
        abandoned=list(welcome.abandon_dispatch_ids),
        resume_points=points,
    )


def batch_event(batch: wire.PackedDispatchBatch) -> ev.BatchReceived:
    """A batch with each of its items parsed alone."""
    model = batch.model
    items = [_item(data, batch, model) for data in batch.items]
    return ev.BatchReceived(engine_id=batch.engine_id, items=items, atomic=batch.atomic)


def _item(data: bytes, batch: wire.PackedDispatchBatch, model: str) -> Item:
    """`model`: the batch's. Each field is read once: this is on the way of every batch."""
    try:
        packed = wire.PackedDispatchItem.FromString(data)
    except DecodeError:
        return _unreadable(data)
    try:
        request = inference.InferenceRequest.FromString(packed.request)
    except DecodeError:
        return _unreadable_request(packed)
    charge = packed.charge
    remaining_ns = durations.to_ns(packed.remaining) if packed.HasField("remaining") else None
    continuation = packed.continuation if packed.HasField("continuation") else None
    item = Item(
        dispatch_id=packed.dispatch_id,
        attempt=packed.attempt,
        request_id=packed.request_id or request.request_id,
        tenant=packed.tenant or request.tenant,
        output_id=packed.output_id,
        model=model or request.model,
        cookie=packed.cookie,
        inputs=charge.inputs or 1,
        tokens=charge.tokens,
        stream=packed.stream,
        remaining_ns=remaining_ns,
        starts=_NOWHERE if continuation is None else _starts(continuation),
    )
    engine_item = engines.Item(
        dispatch_id=item.dispatch_id,
        attempt=item.attempt,
        model=item.model,
        request=request,
        max_tokens=packed.max_tokens,
        stream=item.stream,
        priority=packed.priority or request.priority,
        continuation=continuation,
        timeout_s=None if remaining_ns is None else remaining_ns / durations.NS,
    )
    if packed.HasField("trace") and is_sampled(packed.trace):
        engine_item.traceparent = packed.trace.traceparent
        batch_trace = batch.trace if batch.HasField("trace") else None
        item.payload = Payload(engine_item, packed.trace, batch_trace)
    else:
        item.payload = Payload(engine_item, None, None)
    return item


def _starts(before: node.Continuation) -> dict[tuple[int, int], int]:
    """Where new output begins: at the end of what is continued."""
    return {
        (0, TEXT): len(before.text.encode()),
        (0, REASONING): len(before.reasoning.encode()),
    }


def is_sampled(trace: types.TraceContext) -> bool:
    """Whether the flags of the trace context ask for spans."""
    flags = trace.traceparent[-2:]
    try:
        return bool(int(flags, 16) & 1) if len(trace.traceparent) >= 55 else False
    except ValueError:
        return False


def _unreadable_request(packed: wire.PackedDispatchItem) -> Item:
    """An item whose request is no message."""
    charge = packed.charge
    return Item(
        dispatch_id=packed.dispatch_id,
        attempt=packed.attempt,
        request_id=packed.request_id,
        tenant=packed.tenant,
        output_id=packed.output_id,
        cookie=packed.cookie,
        inputs=charge.inputs or 1,
        tokens=charge.tokens,
        stream=packed.stream,
        fault=_fault("request", wire_walk.locate(packed.request, inference.InferenceRequest)),
    )


def _unreadable(data: bytes) -> Item:
    """An item of which no more than its plain numbers can be told."""
    numbers = wire_walk.numbers(data)
    charge = wire_walk.numbers(wire_walk.embedded(data, CHARGE_FIELD))
    path = wire_walk.locate(data, wire.PackedDispatchItem)
    return Item(
        dispatch_id=numbers.get(wire.PackedDispatchItem.DISPATCH_ID_FIELD_NUMBER, 0),
        attempt=numbers.get(wire.PackedDispatchItem.ATTEMPT_FIELD_NUMBER, 0) & 0xFFFF_FFFF,
        inputs=charge.get(node.Charge.INPUTS_FIELD_NUMBER, 0) or 1,
        tokens=charge.get(node.Charge.TOKENS_FIELD_NUMBER, 0),
        fault=_fault("", path),
    )


def _fault(prefix: str, path: str) -> Fault:
    field = ".".join(part for part in (prefix, path) if part) or "item"
    return Fault(f"{field} is not valid protobuf: bad UTF-8, cut off or nested too deep", field)


def running_items(items: Sequence[cmd.HandBack]) -> list[node.RunningItem]:
    """Held items, as the Hello hands them back."""
    return [
        node.RunningItem(
            dispatch_id=back.held.item.dispatch_id,
            attempt=back.held.item.attempt,
            tenant=back.held.item.tenant,
            request_id=back.held.item.request_id,
            output_id=back.held.item.output_id,
            offsets=[
                types.StreamOffset(choice_index=choice, channel=channel, offset=offset)
                for (choice, channel), offset in back.offsets.items()
            ],
            engine_id=back.held.engine_id,
            model=back.held.item.model,
            state=STATES[back.held.state],
            cookie=back.held.item.cookie,
        )
        for back in items
    ]
