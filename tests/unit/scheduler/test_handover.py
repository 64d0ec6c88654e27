"""What a cookie says, and what becomes of it in other hands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchyard.v1 import inference_pb2
from batchyard.v1 import node_service_pb2 as pb
from scheduler_service.core.events import RunningItem
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.state import TERM_SHIFT
from scheduler_service.core.types import SECOND, Request, ServiceEstimate
from scheduler_service.rpc import handover
from scheduler_service.rpc.convert import fingerprint
from scheduler_service.rpc.handover import COOKIE_BYTES, GRACE_S, Flags, Handover, _deadline, read
from tests.unit.scheduler.small_world import EPOCH_NS, HandClock

KEY = b"k" * 32
DISPATCH_ID = 1 << TERM_SHIFT | 7


def bake(attempt_: Any, clock: Any, key: bytes = KEY) -> bytes:
    return handover.bake(attempt_, clock, key)


def attempt(key: tuple[str, str, str] | None, mean: int = 0, **fields: Any) -> Any:
    """One of a request with that key; `mean`: what its engine takes for such."""
    request = Request(1, "id", "m", 9, 0, key[1] if key else "t", **fields)
    body = inference_pb2.InferenceRequest(model="m", text=inference_pb2.TextInput(prompt="hi"))
    request.context = SimpleNamespace(key=key, request_bytes=body.SerializeToString())
    service = {"m": ServiceEstimate(mean, 1.0, 1)} if mean else {}
    engine = SimpleNamespace(service=service, node=SimpleNamespace(node_id="n1"))
    return SimpleNamespace(request=request, model="m", engine=engine, dispatch_id=DISPATCH_ID)


def test_cookie_comes_back_as_it_was() -> None:
    given_ = attempt(("某人", "gold", "id"), stream=True, deadline=2_000 * SECOND)
    cookie = read(bake(given_, HandClock()))
    assert cookie is not None
    assert (cookie.principal, cookie.tenant, cookie.priority) == ("某人", "gold", 9)
    assert cookie.flags == Flags.STREAM | Flags.WANTED
    assert cookie.deadline_ms == EPOCH_NS // 1_000_000 + 2_000_000
    assert cookie.body_hash == fingerprint(given_.request.context.request_bytes)


def test_clock_that_was_set_between_two_schedulers_ends_no_adopted_work() -> None:
    """An hour ahead, the deadline of the cookie is long over; the agent knows better."""
    clock = HandClock()
    now = 100 * SECOND
    in_a_minute_ms = clock.wall_ns(now + 60 * SECOND) // 1_000_000
    assert _deadline(in_a_minute_ms, clock, now) == now + 60 * SECOND
    hour_ms = 3_600_000
    assert _deadline(in_a_minute_ms - hour_ms, clock, now) == now + GRACE_S * SECOND


def test_no_cookie_where_nobody_could_come_back_or_repeating_is_cheap() -> None:
    clock = HandClock()
    assert bake(attempt(None), clock) == b""
    assert bake(attempt(("p", "t", "id"), mean=SECOND // 100), clock) == b""
    assert bake(attempt(("p", "t", "id"), mean=SECOND), clock) != b""
    assert bake(attempt(("p" * COOKIE_BYTES, "t", "id")), clock) == b""


def test_long_work_among_short_has_one() -> None:
    """The mean of a model that mostly classifies says nothing about the stream of 1,000 tokens."""
    short, clock = SECOND // 100, HandClock()  # of one token
    key = ("p", "t", "id")
    assert bake(attempt(key, mean=short, output_tokens=10, stream=True), clock) == b""
    assert bake(attempt(key, mean=short, output_tokens=1_000), clock) != b""
    assert bake(attempt(key, mean=short, stream=True), clock) != b"", "it may be long"


def test_item_of_a_job_always_has_one() -> None:
    cookie = read(bake(attempt(None, SECOND // 100, request_class=RequestClass.JOB), HandClock()))
    assert cookie is not None
    assert (cookie.request_class, cookie.tenant) == (RequestClass.JOB, "t")


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda data: b"\x03" + data))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """An agent may hand back what it likes."""
    read(data)


def brought_back(node_id: str = "n1", **changes: Any) -> tuple[list[tuple[str, str]], int]:
    """The items of jobs that a scheduler of term 2 takes for wanted, and how many were forged."""
    given_ = attempt(None, request_class=RequestClass.JOB)
    fields: dict[str, Any] = {"dispatch_id": DISPATCH_ID, "request_id": "id", "model": "m"}
    fields["cookie"] = bake(given_, HandClock())
    told = pb.RunningItem(**(fields | changes))
    asked: list[tuple[str, str]] = []

    def item_of_job(tenant: str, request_id: str) -> Request | None:
        asked.append((tenant, request_id))
        return None

    unused: Any = None
    here = Handover(unused, unused, term=2, key=KEY, next_rid=unused, item_of_job=item_of_job)
    forged = here.recognise(node_id, [RunningItem(told.dispatch_id, "id")], [told])
    return asked, forged


def test_only_the_item_that_a_cookie_was_made_for_is_recognised() -> None:
    """A rogue agent cannot bring answers to requests that it never got."""
    assert brought_back() == ([("t", "id")], 0)
    cookie = bake(attempt(None, request_class=RequestClass.JOB), HandClock())
    other_key = bake(attempt(None, request_class=RequestClass.JOB), HandClock(), b"o" * 32)
    for changes in (
        {"node_id": "n2"},
        {"request_id": "another"},
        {"dispatch_id": DISPATCH_ID + 1},
        {"model": "m2"},
        {"cookie": other_key},
        {"cookie": cookie.replace(b"\x01t", b"\x01u")},
        {"cookie": cookie[:-16] + b"\0" * 16},
    ):
        assert brought_back(**changes) == ([], 1), changes
