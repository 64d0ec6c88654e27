"""Lengths of time and sizes: what is read, what is refused, and what is written back."""

from __future__ import annotations

import pytest

from service_kit.units import duration_ns, duration_s, size_bytes, write_duration, write_size

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("3s", 3 * S),
        ("500ms", S // 2),
        ("1m 30s", 90 * S),
        ("0", 0),
        ("1.5us", 1500),
    ],
)
def test_durations_are_read_exactly(text: str, nanoseconds: int) -> None:
    assert duration_ns(text) == nanoseconds
    assert duration_ns(write_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "3", "3 apples", "-1s", "1s2", True, None, [], "1e3s", "9" * 9]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration_ns(text)


@pytest.mark.parametrize(("text", "size"), [("64MiB", 64 << 20), ("100 MB", 10**8), ("512B", 512)])
def test_sizes_are_read_exactly(text: str, size: int) -> None:
    assert size_bytes(text) == size
    assert size_bytes(write_size(size)) == size


@pytest.mark.parametrize("text", ["64", "64mib", "-1B", True, None, "1TiB"])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no size"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20ms", 0.02), ("2s", 2.0), ("1.5 s", 1.5), ("2m", 120.0), ("250us", 250e-6), ("0", 0.0)],
)
def test_durations_are_read_in_seconds_too(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["20", 20, 1.5, "-1s", "1e3s", "s", "", None, "nans", True, False]
)
def test_what_is_no_duration_has_no_seconds_either(value: object) -> None:
    with pytest.raises(ValueError, match="a number and a unit"):
        duration_s(value)
