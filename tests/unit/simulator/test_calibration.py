"""The figures of the measured table are those of the measurements."""

from __future__ import annotations

import csv
import gzip
from statistics import median

import pytest

from simulator.calibration import LINEAR, MEASURED_2023, PS_PER_MS, present_stack
from simulator.workload.traces import DATA

ROWS = {
    "H100-70B": ("llama2-70b", "h100-80gb", "8"),
    "H100x4-70B": ("llama2-70b", "h100-80gb", "4"),
    "A100-70B": ("llama2-70b", "a100-80gb", "8"),
    "A100x4-70B": ("llama2-70b", "a100-80gb", "4"),
    "H100-BLOOM176B": ("bloom-176b", "h100-80gb", "8"),
}


def measured(name: str) -> list[dict[str, str]]:
    path = DATA / "calibration_splitwise_perf_model.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [
            row
            for row in csv.DictReader(file)
            if (row["model"], row["hardware"], row["tensor_parallel"]) == ROWS[name]
        ]


@pytest.mark.parametrize("name", ROWS)
def test_prefill_is_the_median_of_what_was_measured(name: str) -> None:
    rows = measured(name)
    for tokens, picoseconds in MEASURED_2023[name].cost.prefill:
        found = median(
            float(r["prompt_time"])
            for r in rows
            if int(r["prompt_size"]) == tokens and r["batch_size"] == "1"
        )
        assert picoseconds / PS_PER_MS == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("name", ROWS)
def test_decode_steps_fit_what_was_measured(name: str) -> None:
    """Within 10 % at every batch size: straight lines through five numbers of sequences."""
    rows, cost = measured(name), MEASURED_2023[name].cost
    for batch in (1, 2, 4, 8, 16, 32):
        found = median(
            float(r["token_time"])
            for r in rows
            if int(r["batch_size"]) == batch and r["prompt_size"] == "512"
        )
        step = cost.decode(batch, batch * (512 + 64)) / PS_PER_MS
        assert step == pytest.approx(found, rel=0.1)


def test_memory_is_what_the_weights_leave() -> None:
    assert MEASURED_2023["H100-70B"].kv_tokens == pytest.approx(1_330_000, rel=0.01)
    assert LINEAR["A100x1-8B"].kv_tokens == pytest.approx(427_000, rel=0.01)


def test_the_present_stack_lies_above_the_lower_bound() -> None:
    bound = LINEAR["H100-70B"].cost
    now = present_stack(bound)
    assert now.source == "2025"
    for tokens, picoseconds in bound.prefill:
        dearer = picoseconds * 1.25 + 2 * PS_PER_MS
        assert now.prefill_of(tokens, beside_decodes=False) == pytest.approx(dearer)
    assert now.decode(8, 4096) == pytest.approx(bound.decode(8, 4096) * 1.25 + 2 * PS_PER_MS)
