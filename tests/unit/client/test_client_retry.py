"""What may be sent again, how often and how soon."""

from __future__ import annotations

import pytest

from batchyard.errors import AttemptsExhausted, BatchyardError, Overloaded, Unavailable
from batchyard.retry import RetryPolicy

FOREVER = float("inf")
UNREACHABLE = Unavailable("no connection")


def test_retry_after_is_honoured() -> None:
    error = Overloaded("full", reason="QUEUE_FULL", retry_after=3.0)
    for _ in range(10):
        delay_s = RetryPolicy(3).delay_s(error, 1, FOREVER)
        assert delay_s is not None
        assert 3.0 <= delay_s <= 3.1


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("full", reason="MAX_WAIT_EXCEEDED", retryable=True),
        Unavailable("no node", reason="NO_CAPACITY", retryable=True),  # pushed back
        AttemptsExhausted("lost", reason="NODE_LOST", retryable=True),
        AttemptsExhausted("lost", reason="NODE_LOST", retryable=True, retry_after=0.0),
        BatchyardError("?"),
    ],
)
def test_without_leave_nothing_is_sent_again(error: BatchyardError) -> None:
    """Behaviour 66: what the scheduler has retried, no client multiplies."""
    assert RetryPolicy(3).delay_s(error, 1, FOREVER) is None


def test_number_of_retries_is_a_limit_and_zero_is_off() -> None:
    policy = RetryPolicy(2)
    assert policy.delay_s(UNREACHABLE, 2, FOREVER) is not None
    assert policy.delay_s(UNREACHABLE, 3, FOREVER) is None
    assert RetryPolicy(0).delay_s(UNREACHABLE, 1, FOREVER) is None


def test_no_retry_that_would_come_after_the_deadline() -> None:
    error = Overloaded("full", retry_after=5.0)
    assert RetryPolicy(3).delay_s(error, 1, 4.9) is None


def test_budget_is_a_tenth_of_the_calls_after_a_small_floor() -> None:
    policy = RetryPolicy(3)
    floor = sum(policy.delay_s(UNREACHABLE, 1, FOREVER) is not None for _ in range(100))
    assert floor == 10
    for _ in range(200):
        policy.call_began()
    earned = sum(policy.delay_s(UNREACHABLE, 1, FOREVER) is not None for _ in range(100))
    assert earned in (19, 20)  # tenths add up to a little less than a whole


def test_backoff_is_jittered_and_bounded() -> None:
    policy = RetryPolicy(9)
    delays = [policy.backoff_s(50) for _ in range(200)]
    assert max(delays) <= 2.0
    assert len({round(delay_s, 3) for delay_s in delays}) > 50
