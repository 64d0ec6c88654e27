"""How is running work recognised after a restart of the scheduler?

With each dispatch goes a cookie; an agent hands it back, unread, with the item. It says what the
next scheduler must know and the protocol's RunningItem does not: whose request it is, which body it
has (a hash), until when it is wanted. Computing that hash is dear, so it is left out where nobody
could come back to the work, or where repeating it is cheap.

Version 3 of the cookie: a byte each for the version, the class, the priority and the flags, the
deadline in milliseconds of the wall clock (0: none), the hash of the body, then principal and
tenant, each with its length in front, and a seal: a keyed BLAKE2s over that and the node, dispatch
id, request id and model it was made for. Without it any agent could bring back, under made-up
cookies, answers to requests it never got. The key never leaves the state folder.
"""

from __future__ import annotations

import asyncio
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from hashlib import blake2s
from typing import Final

from batchyard.v1 import inference_pb2
from batchyard.v1 import node_service_pb2 as pb
from scheduler_service.clock import Clock
from scheduler_service.core.events import RunningItem
from scheduler_service.core.outcomes import RequestClass, ResumeMode
from scheduler_service.core.state import TERM_SHIFT
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    SECOND,
    Attempt,
    Duration,
    Instant,
    Request,
    ServiceEstimate,
)
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import fingerprint
from scheduler_service.rpc.entries import Entry

VERSION: Final = 3
COOKIE_BYTES: Final = 256  # a longer one is not sent
WORTH: Final[Duration] = 200 * MILLISECOND  # work that is known to be shorter is repeated
GRACE_S: Final = 30.0  # for the caller of adopted work to come back
SEAL_BYTES: Final = 16

_HEAD: Final = struct.Struct(">BBBBQ16s")
_NO_HASH: Final = b"\0" * 16
# On the path of every item: a look-up costs 70 ns.
_INTERACTIVE: Final = RequestClass.INTERACTIVE


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


def bake(attempt: Attempt, clock: Clock, key: bytes) -> bytes:
    """The cookie of a dispatch, sealed; empty: it need not be adopted, or cannot be."""
    request = attempt.request
    body_hash, principal, wanted = _NO_HASH, "", Flags(0)
    if request.request_class is _INTERACTIVE:
        entry = request.context
        whose = getattr(entry, "key", None)
        if whose is None or not is_worth_it(request, attempt.engine.service.get(attempt.model)):
            return b""
        message = inference_pb2.InferenceRequest.FromString(entry.request_bytes)
        if message.output.omit_text:  # offsets count what is only in the body
            return b""
        body_hash, principal = fingerprint(entry.request_bytes), whose[0]
        wanted = Flags.WANTED
    flags = wanted | (Flags.STREAM if request.stream else Flags(0))
    if request.continuing:
        flags |= Flags.CONTINUES
    deadline_ms = 0
    if request.deadline < NEVER:
        deadline_ms = clock.wall_ns(request.deadline) // MILLISECOND
    cookie = _HEAD.pack(
        VERSION, request.request_class, request.priority, flags, deadline_ms, body_hash
    )
    cookie += _text(principal) + _text(request.tenant)
    if len(cookie) > COOKIE_BYTES - SEAL_BYTES:
        return b""
    node_id = attempt.engine.node.node_id
    return cookie + _seal(
        key, cookie, node_id, attempt.dispatch_id, request.request_id, attempt.model
    )


def is_worth_it(request: Request, known: ServiceEstimate | None) -> bool:
    """False: it is known to be short, so it is repeated rather than adopted.

    The mean alone does not know it: one long stream among many short answers would be lost. So the
    mean is scaled to the tokens that the request may have; a stream that states none may be long.
    """
    if known is None or known.mean >= WORTH:
        return True
    if known.tokens > 0 and request.output_tokens:
        return known.mean * request.output_tokens >= WORTH * known.tokens
    return request.stream


def _seal(
    key: bytes, content: bytes, node_id: str, dispatch_id: int, request_id: str, model: str
) -> bytes:
    """What only a scheduler of this cluster can make."""
    content += dispatch_id.to_bytes(8) + _text(node_id) + _text(request_id) + _text(model)
    return blake2s(content, digest_size=SEAL_BYTES, key=key).digest()


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def read(cookie: bytes) -> Cookie | None:
    """What it says, whoever made it; None: it is none of this version."""
    if len(cookie) < _HEAD.size + 4 + SEAL_BYTES or cookie[0] != VERSION:
        return None
    _, kind, priority, flags, deadline_ms, body_hash = _HEAD.unpack_from(cookie)
    rest = cookie[_HEAD.size : -SEAL_BYTES]
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
        key: bytes,
        next_rid: Callable[[], int],
        item_of_job: Callable[[str, str], Request | None] | None = None,
    ) -> None:
        self._book = book
        self._clock = clock
        self._term = term
        self._key = key
        self._next_rid = next_rid
        self._item_of_job = item_of_job  # by tenant and request id

    def recognise(self, node_id: str, items: list[RunningItem], told: list[pb.RunningItem]) -> int:
        """Say of each item of the node's hello for which request it is wanted; `told` are the same.

        Returns how many have a cookie that was not made for that item on that node.
        """
        forged = 0
        for item, given in zip(items, told, strict=True):
            if not 0 < given.dispatch_id >> TERM_SHIFT < self._term:
                continue
            cookie = read(given.cookie)
            if cookie is None:
                continue
            if not self._is_ours(node_id, given):
                forged += 1
                continue
            if cookie.flags & Flags.CONTINUES:
                continue
            item.engine_id, item.model = given.engine_id, given.model
            item.attempt, item.output_id = max(1, given.attempt), given.output_id
            item.written = sum(end.offset for end in given.offsets)
            if cookie.request_class is RequestClass.JOB:
                if self._item_of_job is not None:
                    item.orphan = self._item_of_job(cookie.tenant, given.request_id)
            elif cookie.flags & Flags.WANTED:
                item.orphan = self._call(given, cookie)
        return forged

    def _is_ours(self, node_id: str, given: pb.RunningItem) -> bool:
        content, seal = given.cookie[:-SEAL_BYTES], given.cookie[-SEAL_BYTES:]
        due = _seal(self._key, content, node_id, given.dispatch_id, given.request_id, given.model)
        return hmac.compare_digest(seal, due)

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
        request.max_attempts = 0  # its body is not here, until its caller is
        request.resume_mode = ResumeMode.FAIL
        if cookie.deadline_ms:
            request.deadline = _deadline(cookie.deadline_ms, self._clock, now)
        entry = Entry(request, b"", self._clock)
        entry.body_hash = cookie.body_hash
        self._book.keep(entry, key, asyncio.get_running_loop(), GRACE_S)
        return request


def _deadline(deadline_ms: int, clock: Clock, now: Instant) -> Instant:
    """No earlier than the grace: the wall clock may have been set in between, and the agent ends
    the item in time, by its own monotonic clock.
    """
    left = deadline_ms * MILLISECOND - clock.wall_ns(now)
    return now + max(round(GRACE_S * SECOND), left)


def _streams(cookie: Cookie) -> bool:
    return bool(cookie.flags & Flags.STREAM)
