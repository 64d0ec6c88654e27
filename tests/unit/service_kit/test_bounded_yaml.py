"""A short text stays small, whatever it says."""

from __future__ import annotations

import pytest

from service_kit.bounded_yaml import Unreadable, read


def test_anchors_and_merges_work_as_in_any_yaml() -> None:
    _, values = read("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n")
    assert values["b"] == {"x": 1, "y": 3}
    assert values["c"] == [{"x": 1, "y": 2}] * 2
    assert read("") == (None, None)


def laughs(first: str, again: str) -> str:
    """Each line is nine times the one before."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {again.format(','.join([f'*a{n - 1}'] * 9))}" for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (laughs("[x]", "[{}]"), "aliases stand for more than 10000 values"),
        (laughs("{x: 1}", "{{<<: [{}]}}"), "aliases stand for more than 10000 values"),
        ("[" * 2_000, "nested deeper than 32 levels"),
        ("a: " + "{a: " * 500 + "1" + "}" * 500, "nested deeper than 32 levels"),
        ("a: &a {b: *a}", r"\*a stands within itself"),
        ("a: &a [*a]", r"\*a stands within itself"),
        ("a: !!python/object/apply:os.getpid []", "could not determine a constructor"),
        ("a: 2026-99-99", "month must be in 1..12"),
        ("a: " + "9" * 5_000, "not YAML"),
        ("a: !!bool x", "not YAML"),
        ("a: !!timestamp x", "not YAML"),
        ('a: {"\\ud800": 1}', "half a character"),
        ("a: 1\n---\nb: 1", "expected a single document"),
    ],
)
def test_what_is_no_configuration_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read(text)
