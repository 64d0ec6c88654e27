"""Engine models end work when real engines of that kind would."""

from __future__ import annotations

from random import Random

import pytest

from scheduler_service.core.types import MILLISECOND, SECOND
from simulator.calibration import MEASURED_2023, PS_PER_NS, IterationCost
from simulator.engines import (
    ContinuousEngine,
    ContinuousProfile,
    IndependentEngine,
    StaticEngine,
    affine,
    generation,
    padded,
)
from simulator.engines.gaps import GapHistogram
from simulator.workload.arrival import Arrival
from tests.unit.simulator.bench import Bench

COST = MEASURED_2023["H100-70B"].cost
# A decode step of 10 ms + 1 ms per sequence, prompts of 1 ms per token; round figures to add up.
PLAIN = IterationCost(
    "plain",
    base=10_000_000_000,
    per_sequence=1_000_000_000,
    per_context_token=0,
    prefill=((1, 1_000_000_000), (1000, 1_000_000_000_000)),
)


def continuous(cost: IterationCost = PLAIN, **fields: int) -> Bench:
    values = {"slots": 4, "kv_tokens": 10_000, "token_budget": 0, **fields}
    profile = ContinuousProfile(cost=cost, **values)
    return Bench(lambda host: ContinuousEngine(host, profile))


def ms(value: float) -> int:
    return round(value * MILLISECOND)


def test_servers_run_side_by_side_and_take_the_next_in_order() -> None:
    bench = Bench(lambda host: IndependentEngine(host, 2))
    bench.submit(*(Arrival(0, service=s) for s in (30, 50, 10)))
    assert [(e.at, e.dispatch_id) for e in bench.run()] == [(30, 0), (40, 2), (50, 1)]
    assert bench.engine.busy == 90


def test_servers_may_take_the_most_urgent_next_then_the_oldest() -> None:
    bench = Bench(lambda host: IndependentEngine(host, 1, urgent_first=True))
    bench.submit(*(Arrival(0, service=10, priority=p) for p in (5, 1, 7, 7)))
    assert [e.dispatch_id for e in bench.run()] == [0, 2, 3, 1]


def test_a_lone_sequence_reads_its_prompt_then_makes_a_token_per_step() -> None:
    bench = continuous()
    bench.submit(Arrival(0, prompt_tokens=20, output_tokens=4))
    (end,) = bench.run()
    assert end.first_output_at == ms(20)
    assert end.at == ms(20 + 3 * 11)
    assert end.made == 4


def test_a_newcomer_joins_at_the_end_of_the_iteration_in_progress() -> None:
    bench = continuous()
    bench.submit(Arrival(0, 20, 10), Arrival(ms(25), 5, 1))
    bench.run()
    newcomer = bench.ends[0]
    # The second token of the first is made from 20 to 31 ms; then both: 11 ms of decode beside
    # 5 ms of prompt.
    assert newcomer.dispatch_id == 1
    assert newcomer.at == ms(31 + 11 + 5)


def test_a_chunk_budget_keeps_tokens_coming_while_a_long_prompt_is_read() -> None:
    def longest_gap(budget: int) -> float:
        bench = continuous(token_budget=budget)
        engine = bench.engine
        assert isinstance(engine, ContinuousEngine)
        engine.gaps = GapHistogram()
        bench.submit(Arrival(0, 10, 100), Arrival(ms(50), 900, 2))
        bench.run()
        return engine.gaps.quantile(1.0) / MILLISECOND

    assert longest_gap(0) == pytest.approx(911, rel=0.02)
    assert longest_gap(100) == pytest.approx(11 + 99, rel=0.02)


@pytest.mark.parametrize("budget", [0, 512, 2048])
@pytest.mark.parametrize("memory", [20_000, 1_300_000])
@pytest.mark.parametrize("blocks", [False, True])
def test_leaps_end_at_the_same_picosecond_as_single_iterations(
    budget: int, memory: int, blocks: bool
) -> None:
    """With cancels, preemption for memory, chunks and shared prefixes."""

    def run(progress_every: int) -> Bench:
        bench = continuous(
            COST, slots=16, kv_tokens=memory, token_budget=budget, progress_every=progress_every
        )
        random = Random(3)
        at = 0
        for number in range(150):
            at += int(random.expovariate(2.5) * SECOND)
            prompt = random.randrange(10, 3000)
            ids = [1000 + number % 7 * 10 + i for i in range(min(3, prompt // 100))]
            ids += [10_000 + number * 100 + i for i in range(-(-prompt // 100) - len(ids))]
            arrival = Arrival(at, prompt, random.randrange(1, 400))
            if blocks:
                arrival.blocks, arrival.block_tokens = tuple(ids), 100
            bench.submit(arrival, first_id=number)
            if number % 17 == 0:
                bench.at(at + SECOND, lambda n=number: bench.engine.cancel(n))
        bench.run()
        return bench

    leaping, stepping = run(0), run(1)
    assert leaping.ends == stepping.ends
    assert len(leaping.ends) == 150
    for engine in (leaping.engine, stepping.engine):
        assert isinstance(engine, ContinuousEngine)
        assert engine.memory.own == engine.memory.cache.held == engine.running == 0
        assert (engine.preemptions > 0) is (memory == 20_000)


def test_the_latest_admitted_makes_room_and_is_read_again() -> None:
    bench = continuous(kv_tokens=60)
    bench.submit(Arrival(0, 20, 20), Arrival(0, 20, 20))
    first, second = bench.run()
    assert isinstance(bench.engine, ContinuousEngine)
    assert bench.engine.preemptions == 1
    assert (first.dispatch_id, second.dispatch_id) == (0, 1)
    assert first.complete
    assert second.complete
    assert second.made == 20


def test_what_can_never_fit_ends_as_out_of_memory() -> None:
    bench = continuous(kv_tokens=60)
    works = bench.submit(Arrival(0, 80, 1), Arrival(0, 50, 100), Arrival(0, 10, 1))
    bench.run()
    assert [w.out_of_memory for w in works] == [True, True, False]
    assert works[2].complete


def test_a_repeated_prefix_is_not_read_again() -> None:
    bench = continuous()
    blocks = (1, 2, 3)
    bench.submit(
        Arrival(0, 300, 1, blocks=blocks, block_tokens=100),
        Arrival(SECOND, 350, 1, blocks=(*blocks, 4), block_tokens=100),
    )
    first, second = bench.run()
    assert first.at == ms(300)
    assert second.at == SECOND + ms(50)


def test_a_slow_node_takes_longer_for_everything() -> None:
    bench = continuous()
    bench.slowness = 3.0
    bench.submit(Arrival(0, 20, 4))
    assert bench.run()[0].at == 3 * ms(20 + 33)


def test_nothing_is_heard_of_a_process_that_is_gone() -> None:
    bench = continuous()
    bench.submit(Arrival(0, 20, 4))
    bench.at(ms(30), bench.engine.halt)
    bench.submit(Arrival(ms(40), 10, 1), first_id=7)
    assert [(e.dispatch_id, e.at) for e in bench.run()] == [(7, ms(50))]


def test_a_static_batch_ends_together_and_cancels_wait_for_its_end() -> None:
    bench = Bench(lambda host: StaticEngine(host, 1, affine(100, 10)))
    bench.submit(Arrival(0), Arrival(0), Arrival(0), atomic=True)
    bench.submit(Arrival(5), first_id=9)
    bench.at(50, lambda: bench.engine.cancel(1))
    ends = bench.run()
    assert [(e.dispatch_id, e.at, e.complete) for e in ends] == [
        (0, 130, True),
        (1, 130, False),
        (2, 130, True),
        (9, 240, True),
    ]


def test_padding_and_the_longest_output_set_the_pace() -> None:
    works = Bench(lambda host: StaticEngine(host, 1, padded(0, 1.0))).submit(
        Arrival(0, 10, 2), Arrival(0, 100, 5)
    )
    assert padded(7, 2.0)(works) == 7 + 2 * 100 * 2
    steps = 4 * (10 + 2)
    assert generation(PLAIN)(works) == ms(200 + steps)


def test_many_iterations_cost_what_single_ones_do() -> None:
    single = sum(COST.decode(7, 5_000 + 7 * i) for i in range(100))
    assert COST.decode(7, 5_000, 100) == single


def test_prompts_beside_decodes_do_not_pay_for_the_launch_again() -> None:
    alone = COST.prefill_of(64, beside_decodes=False)
    assert alone == COST.prefill_of(512, beside_decodes=False)
    assert COST.prefill_of(64, beside_decodes=True) == alone // 8
    assert COST.prefill_of(7_437, beside_decodes=True) // PS_PER_NS == pytest.approx(
        ms(761), rel=0.01
    )
