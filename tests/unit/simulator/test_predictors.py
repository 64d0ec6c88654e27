"""Predictors know as much of an output's length as they say, and no more."""

from __future__ import annotations

import math
from statistics import median

from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import Request
from simulator.predictors import TenantMean, at_most, noisy, oracle
from simulator.tickets import Ticket
from simulator.workload.arrival import Arrival


def test_the_oracle_and_the_callers_limit() -> None:
    arrival = Arrival(0, 10, 77)
    assert oracle(arrival, 1) == 77
    assert at_most(500)(arrival, 1) == 500


def test_noise_has_its_width_and_is_the_same_again() -> None:
    predict = noisy(0.5, seed=3)
    arrival = Arrival(0, 10, 10_000)
    factors = [predict(arrival, rid) / 10_000 for rid in range(4_000)]
    logs = [math.log(f) for f in factors]
    assert abs(median(logs)) < 0.03
    assert abs(math.sqrt(sum(x * x for x in logs) / len(logs)) - 0.5) < 0.02
    assert predict(arrival, 7) == round(factors[7] * 10_000)


def test_a_tenant_s_mean_is_learned_from_what_it_finished() -> None:
    predict = TenantMean(first_guess=100)
    arrival = Arrival(0, 10, 30, tenant="a")
    assert predict(arrival, 1) == 100
    for rid, (outcome, made) in enumerate(
        [(Outcome.SUCCEEDED, 30), (Outcome.SUCCEEDED, 50), (Outcome.FAILED, 9_999)]
    ):
        ticket = Ticket(Arrival(0, 10, made, tenant="a"))
        request = Request(rid, f"r{rid}", "m", tenant="a", context=ticket)
        predict.on_finished(0, cmd.FinishRequest(request, outcome))
    assert predict(arrival, 2) == 40
    assert predict(Arrival(0, 1, 1, tenant="b"), 3) == 100
