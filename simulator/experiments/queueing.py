"""What does queueing theory say? Closed forms for service times of mean 1."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in M/M/c; `load` in Erlangs."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    rho = load / servers
    return blocked / (1 - rho * (1 - blocked))


def mmc_wait(servers: int, load: float) -> float:
    """Mean wait in M/M/c."""
    return erlang_c(servers, load) / (servers - load)


def mmc_wait_quantile(servers: int, load: float, share: float) -> float:
    """Quantile of the wait in M/M/c: beyond 0 it is exponential."""
    waits = erlang_c(servers, load)
    return max(0.0, math.log(waits / (1 - share)) / (servers - load))


def md1_wait(rho: float) -> float:
    """Mean wait in M/D/1."""
    return rho / (2 * (1 - rho))


def md1_wait_quantile(rho: float, share: float) -> float:
    """Quantile of the wait in M/D/1, by Erlang's sum with the digits that it cancels."""
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        if _md1_wait_at_most(rho, middle) < share:
            low = middle
        else:
            high = middle
    return high


def _md1_wait_at_most(rho: float, t: float) -> float:
    with localcontext() as context:
        context.prec = 80
        load, time = Decimal(rho), Decimal(t)
        total = Decimal(0)
        for k in range(math.floor(t) + 1):
            behind = load * (k - time)  # not positive
            total += (behind**k if k else Decimal(1)) / math.factorial(k) * (-behind).exp()
        return float((1 - load) * total)


def cobham(servers: int, load: float, shares: list[float]) -> list[float]:
    """Mean waits of classes served by strict priority without preemption, most urgent first."""
    residual = erlang_c(servers, load) / servers
    waits, ahead = [], 0.0
    for share in shares:
        before, ahead = ahead, ahead + share * load / servers
        waits.append(residual / ((1 - before) * (1 - ahead)))
    return waits


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Mean wait in M/G/1, first come first served (Pollaczek and Khinchine)."""
    return rate * second_moment / (2 * (1 - rate * mean))


def mg1_sjf_waits(rate: float, services: list[float]) -> list[float]:
    """Mean wait of each length in M/G/1 if the shortest goes first, without preemption; services as
    measured, and the answer in the order of `sorted(services)`.

    Each length is a class of its own in Cobham's formula; equal ones share theirs.
    """
    services = sorted(services)
    count = len(services)
    residual = rate * sum(s * s for s in services) / count / 2
    waits: list[float] = []
    before = 0.0
    while (at := len(waits)) < count:
        end = at
        while end < count and services[end] == services[at]:
            end += 1
        ahead = before + rate * services[at] * (end - at) / count
        waits += [residual / ((1 - before) * (1 - ahead))] * (end - at)
        before = ahead
    return waits


def round_robin(nodes: int, rho: float) -> float:
    """Mean response of each of `nodes` queues that Poisson arrivals go to in turn.

    Each sees Erlang gaps of that many stages (G/M/1), and its responses are exponential.
    """
    stays = 0.5  # the root of s = E[exp(-(1 - s) * gap)] below 1
    for _ in range(10_000):
        stays = math.pow(1 + (1 - stays) / (nodes * rho), -nodes)
    return 1 / (1 - stays)


def supermarket(choices: int, rho: float) -> float:
    """Mean response of the power of d choices with very many servers: sum of the tails over rho."""
    total, k = 0.0, 1
    while True:
        tail = math.pow(rho, (choices**k - 1) / (choices - 1))
        total += tail
        if tail < 1e-12:
            return total / rho
        k += 1
