"""Many calls over few streams: the current one, and those that the server is leaving.

What happens when a stream ends under its calls:

    never opened    each call fails as Unavailable; its own retries decide. Where a stream broke
                    before, the calls wait for the next one, as if they had been on it
    UNIMPLEMENTED   the calls move to unary RPCs, and all later ones too
    refused         (credentials, protocol) each call fails with that error
    broken          the calls are *unknown*: all are sent again on a new stream, at once and then
                    with back-off, under the same request ids; streams say where they go on
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import grpc

from batchyard.calls import Call
from batchyard.channel import MESSAGE_BYTES_MAX, Metadata
from batchyard.errors import BatchyardError, Cancelled, Unavailable, UnsupportedFeature
from batchyard.link import MULTIPLEX_METHOD, Link
from batchyard.retry import RetryPolicy
from batchyard.v1 import MultiplexResponse

__all__ = ["Multiplexer", "MultiplexerSettings"]


# Codes that say the connection, not the call, is at fault, where the server gave no reason.
_BROKEN = frozenset(
    {"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "DATA_LOSS", "RESOURCE_EXHAUSTED"}
)

_UNSAID = "Internal error from Core"  # grpc.aio's, in place of the status that came


@dataclass(slots=True, frozen=True)
class MultiplexerSettings:
    peer: str
    metadata: Metadata
    policy: RetryPolicy
    reconnect_timeout_s: float
    fall_back: Callable[[list[Call]], None] | None  # None: Multiplex or nothing


class Multiplexer:
    """The transport of calls that share streams. Everything happens in one event loop."""

    def __init__(self, channel: grpc.aio.Channel, settings: MultiplexerSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._method: Any = channel.stream_stream(
            MULTIPLEX_METHOD,
            request_serializer=None,  # frames are bytes already
            response_deserializer=MultiplexResponse.FromString,
        )
        self._call_ids = itertools.count(1)
        self._link: Link | None = None
        self._links: set[Link] = set()
        self._parked: dict[int, Call] = {}  # waiting for the next connection
        self._reconnect: asyncio.TimerHandle | None = None
        self._down_since: float | None = None
        self._failed_connects = 0
        self._closed = False

    def start(self, call: Call) -> None:
        """Takes `call`: it is sent with the next message, or with the next connection."""
        call.number(next(self._call_ids))
        if self._reconnect is not None:
            self._park(call)
            return
        if self._link is None:
            self._link = self._open()
        self._link.submit(call)

    def cancel(self, call: Call) -> None:
        """Forgets a parked call; the server has heard that its stream broke."""
        self._parked.pop(call.call_id, None)

    async def close(self) -> None:
        """Ends all streams; calls that are still there have been cancelled before."""
        self._closed = True
        if self._reconnect is not None:
            self._reconnect.cancel()
            self._reconnect = None
        self._fail(self._parked.values(), _closed_error())
        self._parked.clear()
        await asyncio.gather(*(link.close() for link in list(self._links)))

    def _open(self) -> Link:
        rpc = self._method(metadata=self._settings.metadata or None)
        link = Link(
            cast("grpc.aio.StreamStreamCall[bytes, MultiplexResponse]", rpc),
            peer=self._settings.peer,
            message_bytes_max=MESSAGE_BYTES_MAX,
            going_away=self._leave,
            ended=self._ended,
        )
        self._links.add(link)
        return link

    def _leave(self, link: Link) -> None:
        """The server asked for a new stream; what runs on the old one is finished there."""
        unsent = link.take_backlog()
        if self._link is link:
            self._link = None
        self._down_since = self._loop.time()  # it may be a while until the next one answers
        for call in unsent:
            self.start(call)
        link.finish()

    def _ended(self, link: Link, error: BatchyardError | None) -> None:
        self._links.discard(link)
        if link.opened and self._link is link:
            self._down_since = None
            self._failed_connects = 0
        if self._link is link:
            self._link = None
        calls = [call for call in link.take_all() if not call.settled]
        if not calls:
            if link.opened and error is not None and _is_broken(error):
                self._down_since = self._loop.time()  # calls to come wait for the next one, too
            return
        if error is None or self._closed:
            self._fail(calls, _closed_error())
        elif isinstance(error, UnsupportedFeature) and not link.opened and self._can_fall_back():
            self._fall_back(calls)
        elif _is_unsaid(error) or (
            _is_broken(error) and (link.opened or self._down_since is not None)
        ):
            self._survive(calls, _as_unavailable(error), counted=link.opened)
        else:
            self._fail(calls, error)

    def _can_fall_back(self) -> bool:
        return self._settings.fall_back is not None

    def _fall_back(self, calls: list[Call]) -> None:
        if self._settings.fall_back is not None:
            self._settings.fall_back(calls)

    def _survive(self, calls: list[Call], error: BatchyardError, *, counted: bool) -> None:
        """Parks what may be sent again and plans the next connection."""
        now = self._loop.time()
        if self._down_since is None:
            self._down_since = now
        if now - self._down_since > self._settings.reconnect_timeout_s:
            self._fail([*calls, *self._parked.values()], error)
            self._parked.clear()
            self._down_since = None
            return
        for call in calls:
            call.breaks += counted
            if call.breaks > self._settings.policy.retries:
                self._fail([call], error)
            else:
                self._park(call)
        if self._parked and self._reconnect is None:
            self._reconnect = self._loop.call_later(self._pause_s(error), self._connect_again)

    def _pause_s(self, error: BatchyardError) -> float:
        """The first reconnect comes at once: most breaks are one lost connection."""
        self._failed_connects += 1
        asked_s = error.retry_after or 0.0
        if self._failed_connects == 1:
            return asked_s
        return asked_s + self._settings.policy.backoff_s(self._failed_connects - 1)

    def _connect_again(self) -> None:
        self._reconnect = None
        parked = list(self._parked.values())
        self._parked.clear()
        if not parked:
            return
        if self._link is None:
            self._link = self._open()
        now = self._loop.time()
        for call in sorted(parked, key=lambda call: call.call_id):
            if call.breaks:
                call.prepare_again(now)
            self._link.submit(call)

    def _park(self, call: Call) -> None:
        call.carrier = self
        self._parked[call.call_id] = call

    def _fail(self, calls: Iterable[Call], error: BatchyardError) -> None:
        for call in list(calls):
            call.fail(_copy_for(call, error))


def _is_broken(error: BatchyardError) -> bool:
    """A server's reason decides where there is one; else the code."""
    if error.reason:
        return isinstance(error, Unavailable)
    return error.code in _BROKEN


def _is_unsaid(error: BatchyardError) -> bool:
    """The server ended the stream while something was being sent, and grpc.aio has lost its words:
    the next stream hears them, or is served.
    """
    return error.code == "INTERNAL" and not error.reason and error.message.endswith(_UNSAID)


def _as_unavailable(error: BatchyardError) -> BatchyardError:
    """Whatever the code was: for the call it means that the connection is gone."""
    if isinstance(error, Unavailable):
        return error
    lost = Unavailable(f"the connection broke ({error.code}): {error.message}", retryable=True)
    lost.__cause__ = error.__cause__
    return lost


def _copy_for(call: Call, error: BatchyardError) -> BatchyardError:
    """Each caller gets an error of its own: it carries a traceback and a request id."""
    copy = type(error)(
        error.message,
        reason=error.reason,
        code=error.code,
        retryable=error.retryable,
        retry_after=error.retry_after,
        metadata=error.metadata,
        field=error.field,
        request_id=call.request_id,
    )
    copy.__cause__ = error.__cause__
    return copy


def _closed_error() -> Cancelled:
    return Cancelled("the client was closed")
