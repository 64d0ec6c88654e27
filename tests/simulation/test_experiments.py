"""What of the experiments is exact, or short enough for every change."""

from __future__ import annotations

import signal
import subprocess
import sys
from random import Random

import pytest

from scheduler_service.core.types import SECOND
from simulator.experiments import e2, e3, e4, e5, e6, naive, policies, policies_bounds
from simulator.experiments.policies_bounds import UrgentFirst
from simulator.experiments.policies_runs import FAR, Outcome
from simulator.experiments.registry import EXPERIMENTS
from simulator.experiments.verdicts import Row, render


def judge(*rows: Row) -> None:
    assert rows
    assert all(row.passed for row in rows), "\n" + render(rows)


@pytest.mark.parametrize(
    "cell",
    [
        e2.Cell("least loaded of 2", 0.9),
        e2.Cell("hot and cold of 5", 0.7, mixed=True),
        e2.Cell("least loaded", 0.8, stale=1.0),
    ],
    ids=lambda cell: cell.name,
)
def test_e2_the_live_core_chooses_nodes_as_the_model_does(cell: e2.Cell) -> None:
    judge(e2.same_choices((cell, 300)))


def test_e3_shares_are_fair_and_who_comes_back_gets_its_own() -> None:
    judge(*e3.shares(10), *e3.returning(10))


def test_e3_the_floor_serves_the_least_urgent_and_costs_an_eighth() -> None:
    judge(*e3.ageing(10))


def test_e3_the_uncapped_key_is_a_small_model_s() -> None:
    waits, same = e3.uncapped(e3.mixed(200), 50 * SECOND)
    assert same
    assert waits[10] < waits[1]


def test_e6_the_law_meets_the_objective_with_fewer_turns_than_the_plain_rule() -> None:
    judge(*e6.measure(short=True).rows)


def test_e4_the_curve_of_tokens_and_time() -> None:
    judge(*e4.curve())


def test_e4_static_batches_wait_for_their_longest() -> None:
    outputs = [7, 1, 1, 1]
    assert e4.longest_of(outputs, 1) == 1.0
    assert e4.longest_of(outputs, 2) == pytest.approx((7 * 7 + 9) / 16 / 2.5)


@pytest.mark.parametrize("trace", e5.TABLE)
def test_e5_shortest_first_has_the_known_closed_forms(trace: str) -> None:
    judge(*e5.closed_forms(trace))


def test_e5_the_live_core_sorts_by_length() -> None:
    judge(*e5.live("azure-code", short=True))


@pytest.mark.slow
def test_the_default_order_against_others_and_routers_on_ten_minutes_of_code() -> None:
    judge(*policies.measure(short=True).rows)


def of_the_kind(demands: list[naive.Demand], random: Random) -> list[int]:
    """Waits, in order of arrival, at one server under some order that serves the urgent first, lets
    no request of priority 1 pass an older one of 5, and serves those of 1 by age.
    """
    waits = [0] * len(demands)
    left = list(range(len(demands)))
    free = 0
    while left:
        free = max(free, demands[left[0]][0])
        here = [n for n in left if demands[n][0] <= free]
        able = [n for n in here if demands[n][2] >= 7]
        if not able:
            able = [n for n in here if demands[n][2] == 5]
            if demands[here[0]][2] == 1:
                able.append(here[0])
        chosen = random.choice(able)
        left.remove(chosen)
        waits[chosen] = free - demands[chosen][0]
        free += demands[chosen][1]
    return waits


def some_demands(random: Random, count: int) -> list[naive.Demand]:
    """At a load of about one server and a half; no two things happen at once."""
    ats = sorted(random.randrange(100_000 * count) for _ in range(count))
    lengths = (1_000, 50_000, 400_000)
    return [
        (at, random.choice(lengths) + random.randrange(1_000), random.choice((10, 7, 5, 1)))
        for at in ats
    ]


@pytest.mark.parametrize("seed", range(40))
def test_no_order_that_keeps_priorities_starts_the_least_urgent_before_the_bound(seed: int) -> None:
    """The proof in the section `policies` of docs/experiments.md, on small cases."""
    random = Random(seed)
    demands = some_demands(random, 60)
    bound = naive.keyed(demands, 1, UrgentFirst().place)
    for _ in range(5):
        waits = of_the_kind(demands, random)
        assert all(
            waits[n] >= bound[n] for n, (_, _, priority) in enumerate(demands) if priority == 1
        )


def test_the_model_of_orders_by_key_is_those_of_first_come_and_of_strict_levels() -> None:
    demands = some_demands(Random(1), 500)
    servers = 2
    assert naive.keyed(demands, servers, lambda at, _: at) == list(
        naive.first_come(demands, servers)
    )
    strict = naive.keyed(demands, servers, lambda at, priority: at - priority * FAR)
    by_priority = [(p, wait) for (_, _, p), wait in zip(demands, strict, strict=True)]
    assert sorted(by_priority) == sorted(naive.strict(demands, servers))


def test_lines_of_their_own_are_one_line_where_there_is_one_node() -> None:
    demands = some_demands(Random(2), 300)
    alone = naive.own_lines(demands, 1, 2, lambda _, __: 0)
    assert alone == list(naive.first_come(demands, 2))
    two = naive.own_lines(demands, 2, 1, lambda number, _: number % 2)
    assert two[0::2] == list(naive.first_come(demands[0::2], 1))


def test_the_default_may_lose_to_a_router_only_where_the_bound_does() -> None:
    def found(urgent: float, late: float) -> Outcome:
        return Outcome(urgent=urgent, late=late, usual=0.0, most=late, mean=0.0)

    router, mine = found(0.92, 8.7), found(1.0, 28.8)
    verdict = policies_bounds.verdict_on_default
    assert verdict(mine, router, found(1.0, 11.0), "router").passed
    assert not verdict(mine, router, found(1.0, 8.6), "router").passed
    assert not verdict(found(0.9, 28.8), router, found(1.0, 11.0), "router").passed
    assert verdict(found(0.93, 8.6), router, found(1.0, 8.6), "router").passed


def test_interrupted_experiments_end_with_their_processes_and_say_what_is_kept() -> None:
    command = [sys.executable, "-m", "simulator.experiments", "e6"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("e6: ")
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)  # its children hold the pipes as well
    assert running.returncode == 130
    assert told == "interrupted; nothing was kept\n"


def test_experiments_are_asked_for_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator.experiments", "e99"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "known: " + ", ".join(EXPERIMENTS) in done.stderr.decode()
