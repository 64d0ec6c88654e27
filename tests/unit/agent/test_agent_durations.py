"""Durations are written in place as if they were copied, zero included."""

from __future__ import annotations

import pytest

from batchyard.v1 import types_pb2
from node_agent.rpc import durations


@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 1_000_000_000, 7_200_000_000_001, -5])
def test_a_duration_written_in_place_is_the_same_as_a_copy(ns: int) -> None:
    copied, written = types_pb2.EngineTimings(), types_pb2.EngineTimings()
    copied.prefill.CopyFrom(durations.from_ns(ns))
    durations.write_ns(written.prefill, ns)
    assert written.HasField("prefill")
    assert written.SerializeToString() == copied.SerializeToString()
    assert durations.to_ns(written.prefill) == max(0, ns)


def test_seconds_are_written_as_nanoseconds() -> None:
    times = types_pb2.EngineTimings()
    durations.write_s(times.decode, 1.5)
    assert durations.to_s(times.decode) == 1.5
