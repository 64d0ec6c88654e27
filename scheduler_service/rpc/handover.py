"""How is running work recognised after a restart of the scheduler?

With each dispatch goes a cookie; an agent hands it back, unread, with the item. It says what the
next scheduler must know and the protocol's RunningItem does not: whose request it is, which body it
has (a hash), until when it is wanted. Computing that hash is dear, so it is left out where nobody
could come back to the work, or where repeating it is cheap.

Version 2 of the cookie: a byte each for the version, the class, the priority and the flags, the
deadline in milliseconds of the wall clock (0: none), the hash of the body, then principal and
tenant, each with its length in front.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from batchyard.v1 import inference_pb2
from batchyard.v1 import node_service_pb2 as pb
from scheduler_service.clock import Clock
from scheduler_service.core.events import RunningItem
from scheduler_service.core.outcomes import RequestClass, ResumeMode
from scheduler_service.core.state import TERM_SHIFT
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Attempt, Duration, Request
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import body_hash as body_hash_of
from scheduler_service.rpc.convert import fingerprint
from scheduler_service.rpc.entries import Entry

VERSION: Final = 2
COOKIE_BYTES: Final = 256  # a longer one is not sent
WORTH: Final[Duration] = 200 * MILLISECOND  # work that is known to be shorter is repeated
GRACE_S: Final = 30.0  # for the caller of adopted work to come back

_HEAD: Final = struct.Struct(">BBBBQ16s")
_NO_HASH: Final = b"\0" * 16


class Flags(IntFlag):
    """What a cookie says in bits."""

    STREAM = 1
    WANTED = 2  # its caller can come back to it
    CONTINUES = 4  # its output begins in the middle: the beginning is gone


@dataclass(slots=True)
class Cookie:
    """What came back."""

    request_class: RequestClass
    priority: int
    flags: Flags
    deadline_ms: int  # of the wall clock; 0: none
    body_hash: bytes
    principal: str
    tenant: str


def bake(attempt: Attempt, clock: Clock) -> bytes:
    """The cookie of a dispatch; empty: it need not be adopted, or cannot be."""
    request = attempt.request
    flags = Flags.STREAM if request.stream else Flags(0)
    if request.continuing:
        flags |= Flags.CONTINUES
    body_hash, principal = _NO_HASH, ""
    entry = request.context
    key = getattr(entry, "key", None)
    if key is not None and request.request_class is RequestClass.INTERACTIVE:
        known = attempt.engine.service.get(attempt.model)
        if known is None or known.mean >= WORTH:
            message = inference_pb2.InferenceRequest.FromString(entry.request_bytes)
            if not message.output.omit_text:  # else offsets count what is only in the body
                fields = {field.name for field, _ in message.ListFields()}
                body_hash, principal = body_hash_of(message, fields), key[0]
                flags |= Flags.WANTED
    if not flags & Flags.WANTED and request.request_class is RequestClass.INTERACTIVE:
        return b""
    deadline_ms = 0
    if request.deadline < NEVER:
        deadline_ms = clock.wall_ns(request.deadline) // MILLISECOND
    cookie = _HEAD.pack(
        VERSION, request.request_class, request.priority, flags, deadline_ms, body_hash
    )
    cookie += _text(principal) + _text(request.tenant)
    return cookie if len(cookie) <= COOKIE_BYTES else b""


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def read(cookie: bytes) -> Cookie | None:
    """None: it is none of this version."""
    if len(cookie) < _HEAD.size + 4 or cookie[0] != VERSION:
        return None
    _, kind, priority, flags, deadline_ms, body_hash = _HEAD.unpack_from(cookie)
    rest = cookie[_HEAD.size :]
    try:
        length = int.from_bytes(rest[:2])
        principal, rest = rest[2 : 2 + length].decode(), rest[2 + length :]
        length = int.from_bytes(rest[:2])
        tenant = rest[2 : 2 + length].decode()
        request_class = RequestClass(kind)
    except ValueError:
        return None
    return Cookie(
        request_class, min(10, max(1, priority)), Flags(flags), deadline_ms, body_hash,
        principal, tenant,
    )  # fmt: skip


class Handover:
    """Finds out which of the work that agents bring back is still wanted."""

    def __init__(
        self,
        book: Book,
        clock: Clock,
        *,
        term: int,
        next_rid: Callable[[], int],
        item_of_job: Callable[[str, str], Request | None] | None = None,
    ) -> None:
        self._book = book
        self._clock = clock
        self._term = term
        self._next_rid = next_rid
        self._item_of_job = item_of_job  # by tenant and request id

    def recognise(self, items: list[RunningItem], told: list[pb.RunningItem]) -> None:
        """Say of each item of a hello for which request it is wanted; `told` are the same."""
        for item, given in zip(items, told, strict=True):
            if not 0 < given.dispatch_id >> TERM_SHIFT < self._term:
                continue
            cookie = read(given.cookie)
            if cookie is None or cookie.flags & Flags.CONTINUES:
                continue
            item.engine_id, item.model = given.engine_id, given.model
            item.attempt, item.output_id = max(1, given.attempt), given.output_id
            if cookie.request_class is RequestClass.JOB:
                if self._item_of_job is not None:
                    item.orphan = self._item_of_job(cookie.tenant, given.request_id)
            elif cookie.flags & Flags.WANTED:
                item.orphan = self._call(given, cookie)

    def _call(self, given: pb.RunningItem, cookie: Cookie) -> Request | None:
        """The request of a caller who is here already, or may come back to it."""
        key = (cookie.principal, cookie.tenant, given.request_id)
        entry = self._book.in_flight(key)
        if entry is not None:
            same = fingerprint(entry.request_bytes) == cookie.body_hash
            return entry.request if same and entry.request.stream is _streams(cookie) else None
        now = self._clock.now()
        request = Request(
            self._next_rid(), given.request_id, given.model, cookie.priority, now, cookie.tenant
        )
        request.stream = _streams(cookie)
        request.max_attempts = 0  # its body is not here
        request.resume_mode = ResumeMode.FAIL
        if cookie.deadline_ms:
            left = cookie.deadline_ms * MILLISECOND - self._clock.wall_ns(now)
            request.deadline = now + max(SECOND, left)
        entry = Entry(request, b"", self._clock)
        entry.body_hash = cookie.body_hash
        self._book.keep(entry, key, asyncio.get_running_loop(), GRACE_S)
        return request


def _streams(cookie: Cookie) -> bool:
    return bool(cookie.flags & Flags.STREAM)
