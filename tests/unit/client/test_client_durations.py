"""Lengths of time, as users write them."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.durations import parse_duration, write_duration
from batchyard.errors import InvalidRequest


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1.5m", 90.0),
        ("1h 30m", 5400.0),
        ("1m30s", 90.0),
        ("2d", 172800.0),
        ("0s", 0.0),
        (3, 3.0),
        (0.25, 0.25),
        (timedelta(milliseconds=20), 0.02),
    ],
)
def test_every_spelling_gives_seconds(written: Any, seconds: float) -> None:
    assert parse_duration(written, "timeout") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        "", "2", "s", "2 parsecs", "-1s", "1s-", -1, math.nan, math.inf, 1e300, True, None, [],
        timedelta(seconds=-1), "999999999999h",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_field(written: Any) -> None:
    """Behaviour 83: NaN and infinities are refused like everything else that is no length."""
    with pytest.raises(InvalidRequest) as caught:
        parse_duration(tuple(written) if isinstance(written, list) else written, "max_wait")
    assert caught.value.field == "max_wait"
    assert caught.value.reason == "INVALID_ARGUMENT"


def test_writing_keeps_nanoseconds() -> None:
    duration = Duration()
    write_duration(duration, 1.000000001)
    assert (duration.seconds, duration.nanos) == (1, 1)
    write_duration(duration, 0.9999999999)
    assert (duration.seconds, duration.nanos) == (1, 0)
