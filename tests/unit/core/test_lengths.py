"""Expected outputs are what this tenant's outputs of this model were, not what callers allow."""

from __future__ import annotations

import math
import random

import pytest

from scheduler_service.core.lengths import FEWEST, MEMORY, Histogram, Lengths, _bucket, _upper
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import Request
from tests.builders import World, engine, settings


def request(rid: int = 1, **fields: object) -> Request:
    return Request(rid, f"r{rid}", "m", **fields)  # type: ignore[arg-type]


def taught(tokens: int, *, tenant: str = "a", times: int = FEWEST) -> Lengths:
    lengths = Lengths()
    for _ in range(times):
        lengths.learn(request(tenant=tenant), "m", tokens)
    return lengths


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 7, 8, 9, 100, 128, 1_000, 4_095, 4_096, 100_000])
def test_a_bucket_ends_at_most_a_quarter_above_what_is_in_it(tokens: int) -> None:
    upper = _upper(_bucket(tokens))
    assert tokens <= upper <= max(tokens, math.ceil(1.25 * tokens))


def test_quantiles_are_those_of_the_sample_up_to_a_bucket() -> None:
    draw = random.Random(5)
    sample = [max(1, round(draw.lognormvariate(5, 1))) for _ in range(MEMORY - 1)]
    histogram = Histogram()
    for tokens in sample:
        histogram.add(tokens)
    for share in (0.5, 0.9, 0.99):
        exact = sorted(sample)[math.ceil(share * len(sample)) - 1]
        assert exact <= histogram.quantile(share) <= 1.3 * exact


def test_the_less_of_the_stated_and_the_likely_counts() -> None:
    lengths = taught(100)
    likely = lengths.likely("m", "a")
    assert 100 <= likely <= 125
    for stated, expected in ((4_096, likely), (30, 30), (0, likely)):
        asked = request(tenant="a", output_tokens=stated)
        lengths.expect(asked)
        assert asked.output_tokens == expected


def test_little_known_tenants_are_like_the_others_of_their_model() -> None:
    lengths = taught(100)
    lengths.learn(request(tenant="b"), "m", 9_000)
    assert lengths.likely("m", "b") == lengths.likely("m", "a")
    assert lengths.likely("other", "a") == 0
    assert taught(100, times=FEWEST - 1).likely("m", "a") == 0


def test_several_choices_and_empty_outputs_teach_nothing() -> None:
    lengths = Lengths()
    for _ in range(2 * FEWEST):
        lengths.learn(request(inputs=4), "m", 400)
        lengths.learn(request(), "m", 0)
    assert lengths.likely("m", "") == 0


def test_what_was_long_ago_fades() -> None:
    lengths = taught(4_000, times=400)
    for _ in range(3 * MEMORY):
        lengths.learn(request(tenant="a"), "m", 10)
    assert lengths.likely("m", "a") < 20


def test_more_requests_fit_into_an_engine_that_counts_tokens() -> None:
    """Each allows 4,096 tokens and says 100: of 8,192, one at a time fits, or all four."""
    held = {}
    for learn in (False, True):
        w = World(settings(queue=QueueSettings(learn_lengths=learn)))
        agent = w.agent("a", engine(slots=4))
        for _ in range(FEWEST):
            agent.finish(w.submit(output_tokens=4_096), output_tokens=100)
        node = w.scheduler.state.nodes["a"]
        node.engines["e0"].credit_tokens = node.engines["e0"].charged_tokens + 8_192
        w.submit(4, output_tokens=4_096, prompt_tokens=50)
        held[learn] = len(agent.running())
    assert held == {False: 1, True: 4}
