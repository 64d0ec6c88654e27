"""E4, batching: what do larger batches buy, and what do they cost?

- The curve: a node of eight H100 with a 70B model, context 512: time between tokens and tokens per
  second by batch size. More than twenty times the tokens for less than twice the time.
- Open loop: latency against rate is flat up to the capacity of the slots, then there is a knee.
- Static against continuous batches at saturation: a static batch waits for its longest output, so
  the gain is near E[longest of B] / E[output] of the trace.
- Chunked prompts: the longest gap between tokens falls from about the longest prompt's reading to
  about a step plus a chunk; the first token comes a little later.
- Waiting for a batch (T = a + b * B with a >> b, several nodes): waiting costs at low load, pays at
  medium load up to a point, and changes nothing at saturation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from scheduler_service.core import CoreSettings
from scheduler_service.core.interfaces import BatchView, Close, PolicySet, WaitUntil
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant
from scheduler_service.policies import build
from scheduler_service.policies.batching import Windowed
from simulator.calibration import MEASURED_2023, PS_PER_MS, IterationCost
from simulator.engines import ContinuousEngine, ContinuousProfile, StaticEngine, generation
from simulator.engines.gaps import GapHistogram
from simulator.engines.interface import Engine, Host
from simulator.experiments.parallel import spread
from simulator.experiments.verdicts import Experiment, Findings, Row, holds, near
from simulator.fleet import Fleet, Group, static
from simulator.kinds import NodeKind
from simulator.pages.charts import Chart, Line, linear
from simulator.simulation import Plan, Run, simulate
from simulator.workload.arrival import Arrival
from simulator.workload.lengths import fixed
from simulator.workload.processes import poisson, requests
from simulator.workload.traces import load
from simulator.world import World, WorldSettings

HARDWARE: Final = MEASURED_2023["H100-70B"]
# (batch, ms between tokens, tokens per second)
CURVE: Final = (
    (1, 29.9, 33), (2, 30.2, 66), (4, 30.8, 130), (8, 32.1, 250),
    (16, 34.5, 463), (32, 39.5, 810), (64, 49.5, 1294),
)  # fmt: skip
# A step of 30 ms whatever is in it, prompts for nothing: only lengths count.
EVEN: Final = IterationCost("even", 30 * PS_PER_MS, 0, 0, ((1, 0), (2, 0)))
GAINS: Final = {
    "azure-conv": {8: 2.15, 16: 2.40, 32: 2.65},
    "azure-code": {8: 3.77, 16: 5.87, 32: 8.14},
}


def play(
    kind: NodeKind,
    arrivals: Iterator[Arrival] | Sequence[Arrival],
    *,
    nodes: int = 1,
    policies: Callable[[], PolicySet] | None = None,
    prepare: Callable[[World, Fleet], None] | None = None,
) -> Run:
    """First come first served, nothing refused."""
    queue = QueueSettings(max_requests=1 << 60, floor_every=0)
    plan = Plan(
        fleet=[Group(nodes, kind)],
        policies=policies or _first_come,
        world=WorldSettings(core=CoreSettings(queue=queue), sample_every=NEVER),
        prepare=[prepare] if prepare is not None else [],
    )
    return simulate(plan, arrivals)


def _first_come() -> PolicySet:
    return build({"admission": "open", "order": "fifo"})


def continuous(
    slots: int,
    cost: IterationCost = HARDWARE.cost,
    *,
    token_budget: int = 0,
    look_ahead: int = 0,
) -> NodeKind:
    """One engine; `token_budget` 0: whole prompts at once."""
    profile = ContinuousProfile(
        cost=cost, slots=slots, kv_tokens=HARDWARE.kv_tokens, token_budget=token_budget
    )

    def make(host: Host) -> Engine:
        return ContinuousEngine(host, profile)

    return NodeKind(name="continuous", make=make, slots=slots, look_ahead=look_ahead)


def whole_batches(slots: int, cost: IterationCost) -> NodeKind:
    """The same engine, without iterations: a batch ends with its longest output."""

    def make(host: Host) -> Engine:
        return StaticEngine(host, 1, generation(cost))

    return NodeKind(name="static", make=make, slots=slots, mode=EngineMode.STATIC)


def step_times() -> dict[int, float]:
    """Ms between tokens by batch: the second token of a batch that holds 512 tokens each comes one
    step after the first.
    """
    steps = {}
    for batch, *_ in CURVE:
        start = SECOND  # once the node is there
        run = play(continuous(batch), [Arrival(start, 511, 2) for _ in range(batch)])
        columns = run.metrics.rows
        steps[batch] = (columns.total[0] - columns.first_output[0]) / MILLISECOND
    return steps


def curve_chart() -> Chart:
    """Tokens per second against the time between them."""
    steps = step_times()
    rates = [1000 * batch / step for batch, step in steps.items()]
    line = Line(name="batches of 1, 2, 4 ... 64", colour=0, x=list(steps.values()), y=rates,
                dots=True)  # fmt: skip
    return Chart(
        title="Tokens per second against ms between tokens, 8xH100, 70B, context 512",
        about="Each dot doubles the batch.",
        lines=[line],
        x=linear(line.x, label="ms between tokens"),
        y=linear(line.y),
    )


def curve() -> list[Row]:
    """Against the measured table."""
    rows, steps = [], step_times()
    for batch, milliseconds, rate in CURVE:
        step = steps[batch]
        rows.append(near(f"batch {batch}: ms between tokens", milliseconds, step, share=0.01))
        rows.append(near(f"batch {batch}: tokens/s", rate, 1000 * batch / step, share=0.015))
    gain, cost = 64 * steps[1] / steps[64], steps[64] / steps[1]
    rows.append(near("64 against 1: tokens", 39, gain, share=0.02))
    rows.append(near("64 against 1: time between tokens", 1.66, cost, share=0.01))
    return rows


def knee(short: bool) -> list[Row]:
    """Poisson arrivals of 512 tokens in and 100 out on 32 slots."""
    slots, count = 32, 800 if short else 6_000
    batch = play(continuous(slots), [Arrival(SECOND, 512, 100) for _ in range(20 * slots)])
    capacity = batch.summary.requests_per_s
    found = {}
    for share in (0.1, 0.5, 0.8, 1.2):
        arrivals = requests(poisson(share * capacity, seed=4), fixed(512, 100), count=count)
        found[share] = play(continuous(slots), arrivals).summary.all
    half, low = found[0.5].total.p50, found[0.1].total.p50
    return [
        holds(
            "latency at half of the capacity against a tenth",
            "less than 1.7 times", f"{half:.2f} s against {low:.2f} s", half < 1.7 * low,
        ),
        holds(
            "mean wait for a slot at 80 % of the capacity",
            "below a tenth of the latency",
            f"{found[0.8].wait.mean:.3f} s of {found[0.8].total.mean:.2f} s",
            found[0.8].wait.mean < 0.1 * found[0.8].total.mean,
        ),
        holds(
            "wait at 120 % of the capacity: the p99 is twice the p50, as of a line that grows",
            "1.6 to 2.4 times", f"{found[1.2].wait.p50:.1f} s and {found[1.2].wait.p99:.1f} s",
            1.6 < found[1.2].wait.p99 / max(1e-9, found[1.2].wait.p50) < 2.4,
        ),
    ]  # fmt: skip


def longest_of(outputs: Sequence[int], batch: int) -> float:
    """E[longest of B] / E[output] of a trace."""
    ordered = sorted(outputs)
    count = len(ordered)
    expected = sum(
        value * (((i + 1) / count) ** batch - (i / count) ** batch)
        for i, value in enumerate(ordered)
    )
    return expected * count / sum(ordered)


def static_against_continuous(short: bool) -> list[Row]:
    """Everything is there at once; the batches are drawn from the trace's lengths.

    The simulated gains are held against what these very batches promise: their longest outputs are
    few and long, and differ by some per cent from draw to draw. Without look-ahead a slot stays
    empty for the step in which its result travels, so every output costs one step more.
    """
    cells = [(trace, batch, 60 if short else 2_000) for trace in GAINS for batch in GAINS[trace]]
    rows = []
    for (trace, batch, _), found in zip(cells, spread(_gain, cells, alone=short), strict=True):
        closed = longest_of(_outputs(trace), batch)
        what, share = f"{trace}, batch {batch}", 0.25 if short else 0.02
        rows += [
            near(f"{what}: longest / mean", GAINS[trace][batch], closed, share=0.05),
            near(f"{what}: gain on drawn batches", found.promised, found.ahead, share=share),
            near(f"{what}: without look-ahead", found.promised_late, found.late, share=share),
        ]
    return rows


@dataclass(frozen=True)
class Gain:
    """Time in whole batches over time in one that changes at every step."""

    promised: float
    ahead: float  # simulated, the next ones waiting in the engine
    promised_late: float
    late: float  # simulated, the next ones sent when a slot is free


def _outputs(trace: str) -> list[int]:
    return [arrival.output_tokens for arrival in load(trace)]


def _gain(cell: tuple[str, int, int]) -> Gain:
    """So many batches that the last sequences, which run alone, weigh little."""
    trace, batch, batches = cell
    outputs, random = _outputs(trace), Random(f"e4/{batch}")
    drawn = [outputs[random.randrange(len(outputs))] for _ in range(batch * batches)]
    longest = sum(max(drawn[i : i + batch]) for i in range(0, len(drawn), batch))
    # A static batch has its first tokens from the prompts, which cost nothing here.
    steps = batch * (longest - batches)
    kinds = (
        whole_batches(batch, EVEN),
        continuous(batch, EVEN, look_ahead=batch),
        continuous(batch, EVEN),
    )
    whole, ahead, late = (
        play(kind, [Arrival(SECOND, 1, tokens) for tokens in drawn]).summary.span_s
        for kind in kinds
    )
    return Gain(
        promised=steps / sum(drawn),
        ahead=whole / ahead,
        promised_late=steps / (sum(drawn) + len(drawn)),
        late=whole / late,
    )


@dataclass(frozen=True)
class Gaps:
    """Between tokens, in ms, and first tokens, in s."""

    p99: float
    most: float
    first_p50: float
    first_p99: float


def _chunked(budget: int, seconds: int) -> Gaps:
    """A part of the coding trace on three nodes, one of them looked at."""
    gaps = GapHistogram()

    def look(_: World, fleet: Fleet) -> None:
        engine = fleet.nodes["n0000"].engine
        assert isinstance(engine, ContinuousEngine)
        engine.gaps = gaps

    arrivals = itertools.takewhile(lambda a: a.at < seconds * SECOND, load("azure-code"))
    part = play(continuous(32, token_budget=budget), arrivals, nodes=3, prepare=look).summary.all
    ms = MILLISECOND
    return Gaps(gaps.quantile(0.99) / ms, gaps.quantile(1.0) / ms, part.ttft.p50, part.ttft.p99)


def chunks(short: bool) -> list[Row]:
    """Whole prompts against chunks of 512 tokens."""
    seconds = 300 if short else 3_500
    whole, chunked = _chunked(7_437, seconds), _chunked(512, seconds)
    cost = HARDWARE.cost
    read = cost.prefill_of(7_437, beside_decodes=True) / PS_PER_MS
    chunk = cost.prefill_of(512, beside_decodes=True) / PS_PER_MS
    step = cost.decode(8, 8 * 2_048) / PS_PER_MS
    return [
        near("longest gap, whole prompts: a step and the longest prompt, ms",
             step + read, whole.most, share=0.05),
        near("longest gap, chunks of 512: a step and a chunk, ms",
             step + chunk, chunked.most, share=0.15),
        holds("p99 gap, whole prompts against chunks", "falls to less than a quarter",
              f"{whole.p99:.0f} ms to {chunked.p99:.0f} ms", chunked.p99 < whole.p99 / 4),
        holds("first token p50, whole prompts against chunks", "rises",
              f"{whole.first_p50:.3f} s to {chunked.first_p50:.3f} s",
              chunked.first_p50 > whole.first_p50),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Patient(Windowed):
    """Waits for a full batch as long as it is told to, whether that can pay or not."""

    def decide(self, view: BatchView, now: Instant) -> Close | WaitUntil:
        """Full, or the oldest has waited that long."""
        if view.waiting >= view.inputs_max:
            return Close("size")
        at = view.oldest_at + self.longest_wait
        return Close("timeout") if at <= now else WaitUntil(at)


def _delayed(rate: float, wait: Duration, count: int) -> float:
    """Mean latency in ms on four nodes with T = 100 + 2 * B ms, batches of up to 32."""

    def policies() -> PolicySet:
        return replace(_first_come(), former=Patient(longest_wait=wait))

    kind = static(32, 100 * MILLISECOND, 2 * MILLISECOND)
    run = play(kind, requests(poisson(rate, seed=1), count=count), nodes=4, policies=policies)
    return run.summary.all.total.mean * 1000


def delays(short: bool) -> list[Row]:
    """Mean latency against the longest wait for a batch, at three loads."""
    count = 1_500 if short else 12_000
    waits = (0, 5, 10, 25, 50)
    found = {
        rate: [_delayed(rate, w * MILLISECOND, count * times) for w in waits]
        for rate, times in ((2.0, 1), (120.0, 1), (1_500.0, 4))
    }

    def told(rate: float) -> str:
        return " / ".join(f"{value:.0f}" for value in found[rate]) + " ms"

    low, medium, high = found.values()
    inner = min(range(len(waits)), key=medium.__getitem__)
    at = " / ".join(str(w) for w in waits)
    return [
        holds(f"waits of {at} ms at 2/s", "the least at 0", told(2.0), min(low) == low[0]),
        holds(f"waits of {at} ms at 120/s", "the least in between",
              told(120.0), 0 < inner < len(waits) - 1),
        holds(f"waits of {at} ms at 1,500/s", "within 3 % of each other",
              told(1_500.0), max(high) < 1.03 * min(high)),
    ]  # fmt: skip


def measure(short: bool) -> Findings:
    """Everything."""
    rows = curve() + knee(short) + static_against_continuous(short)
    found = rows + chunks(short) + delays(short)
    return Findings(found, charts={"curve": curve_chart()})


E4 = Experiment("e4", "Batching: the curve, static and continuous, chunks, waiting", measure)
