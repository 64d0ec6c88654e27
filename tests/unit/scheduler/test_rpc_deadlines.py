"""Deadlines of RPCs come rounded; what orders calls by them must not notice."""

from __future__ import annotations

import pytest

from batchyard.v1 import inference_pb2 as pb
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.rpc_deadlines import even
from scheduler_service.rpc.validate import Limits

MINUTE = 60 * SECOND
CONVERTER = Converter(limits=Limits(), task_types=TaskTypes(), aliases={}, max_attempts=3)


def grain(limit: Duration) -> Duration:
    """Of gRPC's rounding: its core sends 1,000 units or fewer of 1, 10, 100 ms, 1, 10, ... s."""
    unit = MILLISECOND
    while limit >= 1_000 * unit:
        unit *= 10
    return unit


@pytest.mark.parametrize(
    "limit",
    [
        *(n * 100 * MILLISECOND for n in (1, 2, 3, 5)),
        *(n * SECOND for n in (1, 2, 3, 5, 8, 10, 15, 20, 30, 45, 60, 61, 90, 99, 100)),
        *(n * MINUTE for n in (2, 3, 5, 10, 15, 20, 30, 60, 120, 1440)),
    ],
)
def test_a_limit_counts_alike_however_grpc_rounded_it(limit: Duration) -> None:
    up, on_the_way = grain(limit), limit // 250
    arrived = {limit, limit + up, limit - on_the_way, limit + up - on_the_way}
    assert len({even(each) for each in arrived}) == 1
    assert 0.79 < even(limit) / limit <= 1.005


def test_steps_rise() -> None:
    lengths = [0, 1, 999, *(MILLISECOND * 1.07**n for n in range(340))]
    evened = [even(int(length)) for length in lengths]
    assert evened == sorted(evened)
    assert even(999) == 999


def test_order_goes_by_the_step_and_the_end_by_the_deadline() -> None:
    data = pb.InferenceRequest(model="m", text=pb.TextInput(prompt="x")).SerializeToString()

    def ask(deadline: int, data: bytes = data) -> tuple[int, int]:
        parsed = CONVERTER.convert(data, rid=1, now=100, rpc_deadline=deadline, stream=False)
        return parsed.request.deadline, parsed.request.due

    assert ask(100 + 60_100 * MILLISECOND) == (100 + 60_100 * MILLISECOND, 100 + MINUTE)
    assert ask(NEVER) == (NEVER, 0)
    own = pb.InferenceRequest(model="m", text=pb.TextInput(prompt="x"))
    own.timeout.seconds = 59
    exact = own.SerializeToString()
    assert ask(100 + MINUTE, exact) == (100 + 59 * SECOND, 0), "the request's own is exact"
