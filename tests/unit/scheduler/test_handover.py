"""What a cookie says, and what becomes of it in other hands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchyard.v1 import inference_pb2
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import SECOND, Request, ServiceEstimate
from scheduler_service.rpc.convert import fingerprint
from scheduler_service.rpc.handover import COOKIE_BYTES, Flags, bake, read
from tests.unit.scheduler.small_world import EPOCH_NS, HandClock


def attempt(key: tuple[str, str, str] | None, mean: int = 0, **fields: Any) -> Any:
    """One of a request with that key; `mean`: what its engine takes for such."""
    request = Request(1, "id", "m", 9, 0, key[1] if key else "t", **fields)
    body = inference_pb2.InferenceRequest(model="m", text=inference_pb2.TextInput(prompt="hi"))
    request.context = SimpleNamespace(key=key, request_bytes=body.SerializeToString())
    service = {"m": ServiceEstimate(mean, 1.0, 1)} if mean else {}
    return SimpleNamespace(request=request, model="m", engine=SimpleNamespace(service=service))


def test_cookie_comes_back_as_it_was() -> None:
    given_ = attempt(("某人", "gold", "id"), stream=True, deadline=2_000 * SECOND)
    cookie = read(bake(given_, HandClock()))
    assert cookie is not None
    assert (cookie.principal, cookie.tenant, cookie.priority) == ("某人", "gold", 9)
    assert cookie.flags == Flags.STREAM | Flags.WANTED
    assert cookie.deadline_ms == EPOCH_NS // 1_000_000 + 2_000_000
    assert cookie.body_hash == fingerprint(given_.request.context.request_bytes)


def test_no_cookie_where_nobody_could_come_back_or_repeating_is_cheap() -> None:
    clock = HandClock()
    assert bake(attempt(None), clock) == b""
    assert bake(attempt(("p", "t", "id"), mean=SECOND // 100), clock) == b""
    assert bake(attempt(("p", "t", "id"), mean=SECOND), clock) != b""
    assert bake(attempt(("p" * COOKIE_BYTES, "t", "id")), clock) == b""


def test_item_of_a_job_always_has_one() -> None:
    cookie = read(bake(attempt(None, SECOND // 100, request_class=RequestClass.JOB), HandClock()))
    assert cookie is not None
    assert (cookie.request_class, cookie.tenant) == (RequestClass.JOB, "t")


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda data: b"\x02" + data))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """An agent may hand back what it likes."""
    read(data)
