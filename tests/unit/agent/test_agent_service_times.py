"""Measured service times: what is reported, and how the past fades."""

from __future__ import annotations

from node_agent.service_times import MEMORY, PROMPT_LEAST, Mean, ServiceTimes


def test_times_are_reported_by_concurrency_rising() -> None:
    times = ServiceTimes()
    for concurrency, seconds in ((8, 0.4), (1, 0.1), (8, 0.6), (9, 0.7), (5000, 1.0)):
        times.add_run("m", concurrency, seconds)
    times.add_prefill("m", 100, 0.5)
    profile = times.profiles()["m"]
    assert [p.concurrency for p in profile.points] == [1, 8, 1024]
    assert [p.samples for p in profile.points] == [1, 3, 1]
    assert profile.prefill_tokens_per_second == 200


def test_what_cannot_be_is_not_taken_in() -> None:
    times = ServiceTimes()
    times.add_run("m", 0, 1.0)
    times.add_prefill("m", 0, 1.0)
    times.add_prefill("m", 500, 0.0)
    assert times.profiles() == {}


def test_short_prompts_tell_no_rate() -> None:
    times = ServiceTimes()
    times.add_prefill("m", PROMPT_LEAST - 1, 1.0)
    assert times.profiles() == {}


def test_a_slowed_engine_shows_although_it_was_fast_for_long() -> None:
    mean = Mean()
    for _ in range(10_000):
        mean.add(1.0)
    for _ in range(2 * MEMORY):
        mean.add(3.0)
    assert mean.value > 2.5
