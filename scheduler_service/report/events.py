"""How does an event read? From the memory's entries to `batchyard.v1.Event`, on demand.

An event's id is fixed-width hex of term and number, so ids grow as text across restarts, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from batchyard.v1 import report_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.outcomes import AttemptState, Reason
from scheduler_service.eventlog import Entry, Item
from scheduler_service.rpc import status

_ID: Final = re.compile(r"([0-9a-f]{6})([0-9a-f]{12})")
# Their `reason` is what an operator said, not an attribute.
_BY_OPERATORS: Final = frozenset(
    {
        records.NODE_CORDONED,
        records.NODE_UNCORDONED,
        records.NODE_DRAINING,
        records.NODE_DRAINED,
        records.POOL_PAUSED,
        records.POOL_RESUMED,
        records.AUTOSCALE_FROZEN,
        records.AUTOSCALE_UNFROZEN,
        records.LOG_LEVEL_SET,
        records.REQUESTS_CANCELLED,
        records.ACCESS_GRANTED,
        records.ACCESS_CHANGED,
        records.ACCESS_REVOKED,
        records.POLICY_UPDATED,
        records.MODEL_LOAD,
        records.MODEL_UNLOAD,
    }
)
_EXPIRED: Final = frozenset({Reason.DEADLINE_EXCEEDED, Reason.MAX_WAIT_EXCEEDED})

_TEXT: Final[dict[str, str]] = {
    records.SUBMIT: "request {request_id} waits for {model}",
    records.DISPATCH_BATCH: "{count} sent to {node_id}",
    records.BATCH_FINISHED: "{count} ended on {node_id}",
    records.NO_AVAILABLE_NODE: "no live node serves {pool}; {waiting} waiting",
    records.SCALE_OUT: "{pool}: {source} to {target} nodes, {reason}",
    records.SCALE_IN: "{pool}: {source} to {target} nodes, {reason}",
    records.SCALE_FAILED: "{pool}: nodes could not be started: {message}",
    records.NODE_JOINED: "node {node_id} joined",
    records.NODE_SUSPECT: "node {node_id} is suspect: {reason}",
    records.NODE_LOST: "node {node_id} is lost: {reason}; {in_flight} in flight there",
    records.NODE_RECOVERED: "node {node_id} is heard again",
    records.NODE_EJECTED: "node {node_id} gets no new work for {duration_s} s: {reason}",
    records.NODE_REFUSED: "another agent claims the id of node {node_id} and was refused",
    records.NODE_CORDONED: "node {node_id} gets no new work",
    records.NODE_UNCORDONED: "node {node_id} gets work again",
    records.NODE_DRAINING: "node {node_id} drains; {in_flight} in flight there",
    records.NODE_DRAINED: (
        "node {node_id} is drained: {finished} finished, {moved} moved, {lost} lost"
    ),
    records.FAILOVER: "request {request_id} moves on from {node_id}: {reason}",
    records.DEGRADED: "request {request_id} goes to {model} instead of {source}: {reason}",
    records.REJECTED: "request {request_id} was refused: {message}",
    records.CANCELLED: "request {request_id} was cancelled",
    records.EXPIRED: "request {request_id} expired: {message}",
    records.PREEMPTED: "request {request_id} made room on {node_id}",
    records.POOL_PAUSED: "{pool} is paused; {waiting} wait",
    records.POOL_RESUMED: "{pool} dispatches again; {waiting} wait",
    records.AUTOSCALE_FROZEN: "the autoscaler of {pool} is frozen",
    records.AUTOSCALE_UNFROZEN: "the autoscaler of {pool} acts again",
    records.LOG_LEVEL_SET: "log level of {logger}: {level}",
    records.REQUESTS_CANCELLED: "{requests} open requests were cancelled: {filter}",
    records.ACCESS_GRANTED: "access was granted: {what}",
    records.ACCESS_CHANGED: "access was changed by hand: {what}",
    records.ACCESS_REVOKED: "access was revoked: {what}",
    records.POLICY_UPDATED: "policies changed: {changes}",
    records.MODEL_LOAD: "{engine} of {node_id} is to load {pool}",
    records.MODEL_LOADED: "{engine} of {node_id} has loaded {pool}",
    records.MODEL_UNLOAD: "{engine} of {node_id} is to unload {pool}",
    records.MODEL_UNLOADED: "{engine} of {node_id} has unloaded {pool}",
    records.MODEL_FAILED: "{pool} on {engine} of {node_id}: {message}",
    records.LEDGER_HEALED: "the books of {node_id} were corrected: {what}",
    records.SUSPECTED: "request {request_id} was on nodes that failed ({nodes}): it runs alone",
    records.HEDGED: (
        "request {request_id} is slow on {slow_node} after {after_ms} ms: it runs on {node_id}, too"
    ),
    records.POISONED: "request {request_id} makes nodes fail ({nodes}): it is not run again",
}


class _Gaps(dict[str, Any]):
    """A record without some variable still reads."""

    def __missing__(self, key: str) -> str:
        return "?"


def event_id(term: int, number: int) -> str:
    """The id of an event of this term."""
    return f"{term:06x}{number:012x}"


def event_number(text: str, term: int) -> int:
    """The number behind an id; 0 for one of an earlier term: all of this term are newer.

    Raises:
        ValueError: it is no id of an event, or one of a later term.
    """
    match = _ID.fullmatch(text)
    if match is None or int(match[1], 16) > term:
        raise ValueError(f"{text[:64]!r} is no event id of this scheduler")
    return int(match[2], 16) if int(match[1], 16) == term else 0


class EventWriter:
    """Writes events of one term."""

    def __init__(self, clock: Clock, term: int) -> None:
        self._clock = clock
        self._term = term

    def write(self, entry: Entry) -> report_pb2.Event:
        """The event of an entry."""
        data = dict(entry.data or {})
        text = self._text(entry, data)
        reason = str(data.pop("reason", "")) if entry.kind in _BY_OPERATORS else ""
        data.pop("message", None)
        return report_pb2.Event(
            event_id=event_id(self._term, entry.number),
            create_time=self._clock.timestamp(entry.at),
            event=entry.kind,
            message=text,
            request_id=entry.request_id,
            batch_id=entry.batch_id,
            node_id=entry.node_id,
            model=entry.model,
            pool=entry.pool,
            tenant=entry.tenant,
            items=[_item(item) for item in entry.items],
            attributes=_attributes(entry, data),
            trace_id=entry.trace_id,
            principal=entry.principal,
            reason=reason,
        )

    def _text(self, entry: Entry, data: Mapping[str, Any]) -> str:
        count = len(entry.items)
        known = _Gaps(
            data,
            request_id=entry.request_id,
            model=entry.model,
            node_id=entry.node_id,
            pool=entry.pool,
            count="1 request" if count == 1 else f"{count} requests",
        )
        text = _TEXT.get(entry.kind, entry.kind).format_map(known)
        if entry.kind == records.CANCELLED and data.get("message"):
            text += f": {data['message']}"
        return text


def _attributes(entry: Entry, data: Mapping[str, Any]) -> dict[str, str]:
    attributes = {key: _written(value) for key, value in data.items()}
    if entry.priority:
        attributes["priority"] = str(entry.priority)
    if entry.task_type:
        attributes["task_type"] = entry.task_type
    return attributes


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _item(item: Item) -> report_pb2.EventItem:
    built = report_pb2.EventItem(request_id=item.request_id, attempt=item.attempt)
    if item.state is not None:
        built.status = finish_of(item.state, item.reason)
        if item.state is not AttemptState.SUCCEEDED:
            built.error.CopyFrom(status.error(_reason(item), item.message))
    return built


def _reason(item: Item) -> Reason:
    if item.reason is Reason.NONE and item.state is AttemptState.REVOKED:
        return Reason.REVOKED
    return item.reason


def finish_of(state: AttemptState, reason: Reason) -> types_pb2.FinishReason:
    """How one attempt ended, in the words that results use."""
    if state is AttemptState.SUCCEEDED:
        return types_pb2.FINISH_REASON_STOP
    if reason in _EXPIRED:
        return types_pb2.FINISH_REASON_EXPIRED
    if state in (AttemptState.CANCELLED, AttemptState.PREEMPTED, AttemptState.REVOKED):
        return types_pb2.FINISH_REASON_CANCELLED
    return types_pb2.FINISH_REASON_ERROR
