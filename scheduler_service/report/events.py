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
from scheduler_service.report import event_texts as texts
from scheduler_service.report.texts import Language
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

    def write(self, entry: Entry, language: Language = "en") -> report_pb2.Event:
        """The event of an entry."""
        data = dict(entry.data or {})
        text = _text(entry, data, language)
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


def _text(entry: Entry, data: Mapping[str, Any], language: Language) -> str:
    count = len(entry.items)
    one, several = texts.REQUESTS[language]
    known = _Gaps(
        data,
        request_id=entry.request_id,
        model=entry.model,
        node_id=entry.node_id,
        pool=entry.pool,
        count=one if count == 1 else several.format(number=count),
    )
    if entry.kind == records.LEDGER_HEALED and known.get("what") in texts.HEALED:
        known["what"] = texts.HEALED[known["what"]][language].format_map(known)
    by_language = texts.TEXTS.get(entry.kind)
    text = by_language[language].format_map(known) if by_language else entry.kind
    why = _added(entry.kind, data)
    return f"{text}{texts.COLON[language]}{why}" if why else text


def _added(kind: str, data: Mapping[str, Any]) -> str:
    """What a caller, or an agent that leaves, said itself; empty: nothing."""
    if kind == records.CANCELLED:
        return str(data.get("message") or "")
    if kind == records.NODE_DRAINING and data.get("by_agent"):
        return str(data.get("reason") or "")
    return ""


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
