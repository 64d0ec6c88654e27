"""Traces are read as published; processes and assignments are what they say, for any seed."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean, pstdev

import pytest

from scheduler_service.core.types import SECOND
from simulator.workload import processes
from simulator.workload.arrival import Arrival
from simulator.workload.assignment import Assignment, between, faster
from simulator.workload.errors import TraceError
from simulator.workload.lengths import fixed, preset
from simulator.workload.servegen import WINDOW, servegen, windows
from simulator.workload.synthetic import workload
from simulator.workload.traces import instant, load

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{"timestamp": %d, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}\n'
QWEN = (
    '{"chat_id": %d, "parent_chat_id": %d, "timestamp": %s, "input_length": 40, '
    '"output_length": 9, "type": "text", "turn": 1, "hash_ids": [4, 5, 6]}\n'
)
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


def written(path: Path, text: str) -> list[Arrival]:
    path.write_text(text, encoding="utf-8")
    return list(load(path))


@pytest.mark.parametrize(
    ("name", "count", "prompt", "output", "span_s"),
    [
        ("azure-conv", 19_366, 1_155, 211, 3_502),
        ("azure-code", 8_819, 2_048, 27.9, 3_436),
        ("mooncake", 12_031, 12_035, 343, 3_537),
    ],
)
def test_bundled_traces_have_the_known_statistics(
    name: str, count: int, prompt: float, output: float, span_s: float
) -> None:
    arrivals = list(load(name))
    assert len(arrivals) == count
    assert mean(a.prompt_tokens for a in arrivals) == pytest.approx(prompt, rel=0.002)
    assert mean(a.output_tokens for a in arrivals) == pytest.approx(output, rel=0.002)
    assert arrivals[-1].at / SECOND == pytest.approx(span_s, abs=3)
    assert all(a.at <= b.at for a, b in itertools.pairwise(arrivals))


def test_azure_files_of_both_years_are_read(tmp_path: Path) -> None:
    rows = "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,0\n"
    first, second = written(tmp_path / "a.csv", AZURE + rows)
    assert (first.at, first.prompt_tokens, first.output_tokens) == (0, 4808, 10)
    assert (second.at, second.output_tokens) == (52_000_000, 1)
    later = "2024-05-10 00:00:00.009930+00:00,10,2\n2024-05-10 00:00:01+00:00,11,3\n"
    assert written(tmp_path / "b.csv", AZURE + later)[1].at == 990_070_000


def test_mooncake_is_spread_over_its_grid_with_its_blocks(tmp_path: Path) -> None:
    text = "".join(MOONCAKE % at for at in (0, 0, 0, 3000, 3000, 6000))
    arrivals = written(tmp_path / "m.jsonl", text)
    assert [a.at // (3 * SECOND) for a in arrivals] == [0, 0, 0, 1, 1, 2]
    assert len({a.at for a in arrivals}) == 6
    assert arrivals[0].blocks == (0, 1, 2)
    assert arrivals[0].block_tokens == 512
    assert [a.at for a in load(tmp_path / "m.jsonl")] == [a.at for a in arrivals]


def test_qwen_turns_of_one_chat_are_one_session(tmp_path: Path) -> None:
    text = QWEN % (1, -1, "0.5") + QWEN % (2, 1, "3.25") + QWEN % (3, -1, "4")
    arrivals = written(tmp_path / "q.jsonl", text)
    assert [a.session for a in arrivals] == ["chat1", "chat1", "chat3"]
    assert arrivals[1].at == 3_250_000_000
    assert arrivals[1].block_tokens == 16


def test_burstgpt_leaves_failures_out(tmp_path: Path) -> None:
    rows = (
        "5,s1,1.2,ChatGPT,100,20,120,API log\n6,s2,0,GPT-4,50,0,50,API log\n7.5,,1,GPT-4,5,6,11,x\n"
    )
    arrivals = written(tmp_path / "b.csv", BURST + rows)
    assert [(a.at, a.prompt_tokens, a.session) for a in arrivals] == [
        (0, 100, "s1"),
        (2_500_000_000, 5, ""),
    ]


def test_files_may_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((AZURE + "2023-11-16 18:17:03,1,2\n").encode()))
    assert len(list(load(path))) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b,c\n1,2,3\n", "no known format"),
        (AZURE + "2023-11-16 18:17:03,x,2\n", "line 2"),
        (MOONCAKE % 0 + "{broken\n", "line 2: it is not JSON"),
        ('{"timestamp": 0, "input_length": 5}\n', "line 1: KeyError"),
        (AZURE + "2023-11-16 18:17:03,1\n", "line 2: it has fewer columns"),
        (AZURE + "2023-11-16 18:17:03,-5,2\n", "line 2: -5 is no number of tokens"),
        (AZURE + "2023-11-16 18:17:03,1,9" + 20 * "9" + "\n", "line 2: 9+ is no number"),
        (AZURE + '"' + 200_000 * "x" + '",1,1\n', "line 2: field larger"),
        (MOONCAKE.replace("%d", "1e999"), "line 1: OverflowError"),
        (BURST + "inf,,1,m,5,6,11,x\n", "line 2: cannot convert float infinity"),
    ],
)
def test_what_is_no_trace_is_said_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        written(tmp_path / "x", text)


def test_rows_that_are_late_are_put_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"2023-11-16 18:17:{second:02},1,2\n" for second in (0, 3, 1, 4, 2)]
    found = written(tmp_path / "late", AZURE + "".join(rows))
    assert [arrival.at // SECOND for arrival in found] == [0, 1, 2, 3, 4]
    monkeypatch.setattr("simulator.workload.traces.REORDERED", 1)
    with pytest.raises(TraceError, match="sort the file by time"):
        written(tmp_path / "later", AZURE + "".join(rows))


@pytest.mark.parametrize(("rate", "shape"), [("-5", "1"), ("inf", "1"), ("1", "-1"), ("1", "nan")])
def test_a_client_window_without_a_law_is_refused(tmp_path: Path, rate: str, shape: str) -> None:
    path = tmp_path / "windows.csv"
    path.write_text(
        f"client,window_start_s,rate_rps,iat_cv,pattern,p1,p2\n0,0,{rate},1,Gamma,{shape},1\n",
        encoding="utf-8",
    )
    with pytest.raises(TraceError, match="no law of arrivals"):
        windows(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bursts:base=2,peak=20,every=0s,burst=30s", "end before the next"),
        ("bursts:base=2,peak=20,every=30s,burst=30s", "end before the next"),
        ("bursts:base=2,peak=20,every=30s,burst=0s", "end before the next"),
        ("poisson:rate=1,lengths=" + 20 * "9" + "/5", "at most 9 digits"),
    ],
)
def test_what_is_no_workload_is_said(text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        workload(text)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TraceError, match="azure-conv"):
        load("azure")
    with pytest.raises(TraceError, match="sharegpt"):
        preset("none")


def test_timestamps_keep_all_their_digits() -> None:
    assert instant("1970-01-01 00:00:01.1234567") == 1_123_456_700
    assert instant("1970-01-01T00:00:01.5Z") == instant("1970-01-01 01:00:01.5+01:00")


def test_poisson_has_its_rate_and_no_memory() -> None:
    instants = list(itertools.islice(processes.poisson(50.0, seed=4), 20_000))
    gaps = [b - a for a, b in itertools.pairwise(instants)]
    assert mean(gaps) == pytest.approx(SECOND / 50, rel=0.03)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(1.0, rel=0.03)


def test_gamma_gaps_have_the_stated_variation() -> None:
    instants = list(itertools.islice(processes.gamma(10.0, 3.0, seed=4), 40_000))
    gaps = [b - a for a, b in itertools.pairwise(instants)]
    assert pstdev(gaps) / mean(gaps) == pytest.approx(3.0, rel=0.08)


def test_steps_and_bursts_change_their_rate_on_time() -> None:
    plan = [(10.0, 100 * SECOND), (0.0, 50 * SECOND), (40.0, 100 * SECOND)]
    instants = list(processes.steps(plan, seed=2))
    counts = Counter(at // (50 * SECOND) for at in instants)
    assert counts[2] == 0
    assert counts[0] + counts[1] == pytest.approx(1_000, rel=0.1)
    assert counts[3] + counts[4] == pytest.approx(4_000, rel=0.1)
    burst = processes.bursts(1.0, 30.0, every=10 * SECOND, lasts=SECOND, seed=2)
    first = list(itertools.takewhile(lambda at: at < 200 * SECOND, burst))
    assert sum(at % (10 * SECOND) < SECOND for at in first) > 0.6 * len(first)


def test_streams_are_merged_by_time() -> None:
    one = processes.requests(processes.evenly(3), fixed(1, 1), count=3)
    two = processes.requests(processes.evenly(2), fixed(2, 2), count=3)
    merged = list(processes.merged(one, two))
    assert [(a.at, a.prompt_tokens) for a in merged] == [
        (2, 2), (3, 1), (4, 2), (6, 1), (6, 2), (9, 1),
    ]  # fmt: skip


def test_tenants_and_priorities_are_spread_as_stated_and_again_the_same() -> None:
    def assigned() -> list[tuple[str, int]]:
        plain = processes.requests(processes.evenly(1), count=20_000)
        return [(a.tenant, a.priority) for a in Assignment(seed=5)(plain)]

    found = assigned()
    assert found == assigned()
    tenants = Counter(tenant for tenant, _ in found)
    assert sum(n for _, n in tenants.most_common(10)) / len(found) == pytest.approx(0.56, abs=0.02)
    priorities = Counter(priority for _, priority in found)
    assert priorities[5] / len(found) == pytest.approx(0.5, abs=0.02)
    assert priorities[10] / len(found) == pytest.approx(0.1, abs=0.01)


def test_a_trace_can_be_cut_and_made_faster() -> None:
    plain = processes.requests(processes.evenly(SECOND), count=10)
    assert [a.at for a in between(plain, 3, 6)] == [0, SECOND, 2 * SECOND]
    plain = processes.requests(processes.evenly(SECOND), count=2)
    assert [a.at for a in faster(plain, 2.0)] == [SECOND // 2, SECOND]


def test_servegen_makes_each_window_s_number_of_requests() -> None:
    rows = windows()[0]
    expected = sum(row.rate for row in rows) * WINDOW / SECOND * 0.05
    arrivals = list(servegen(fixed(1, 1), seed=3, lasts=WINDOW, scale=0.05))
    assert len(arrivals) == pytest.approx(expected, rel=0.01)
    assert all(a.at <= b.at for a, b in itertools.pairwise(arrivals))
    assert Counter(a.tenant for a in arrivals).most_common(1)[0][1] > len(arrivals) / 20


def test_lengths_have_their_means() -> None:
    draw, random = preset("sharegpt"), Random(1)
    pairs = [draw(random) for _ in range(20_000)]
    assert mean(p for p, _ in pairs) == pytest.approx(161, rel=0.05)
    assert mean(o for _, o in pairs) == pytest.approx(338, rel=0.05)
