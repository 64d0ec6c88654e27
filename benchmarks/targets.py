"""What is measured, in which unit, against which limit, and how good does it have to be?

Data only. `floor` is what a first version must reach, `promise` what the project stands for,
`stretch` what it would like; None: nothing was set. A limit is measured in the same run: it is the
least that the same traffic costs a Python gRPC server that does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the table."""

    what: str
    unit: str
    more_is_better: bool = False
    floor: float | None = None
    promise: float | None = None
    stretch: float | None = None
    limit: str = ""  # what the limit is; empty: there is none


ECHO_BIDI: Final = "bare echo server, the same requests in messages of 64: one read and one write"
ECHO_UNARY: Final = "bare echo server, unary calls with the same request"
ECHO_DELTAS: Final = "bare echo server, the same deltas in messages of 64: one read and one write"
ECHO_STREAM: Final = "bare server that writes one message per delta to as many streams"
ECHO_LATENCY: Final = "bare echo server under the same arrivals"
ECHO_TLS: Final = "bare echo server, the same messages in plain text"
PLAIN: Final = "the same scheduler in plain text, without authentication"
UNTRACED: Final = "the same scheduler without tracing"
SQLITE: Final = "plain SQLite, the same rows, a transaction on the disk for each job"
SQLITE_RESULTS: Final = "plain SQLite, the same rows, 512 in each transaction on the disk"
ECHO_START: Final = "bare echo server, started alike"

MEASURES: Final[dict[str, Measure]] = {
    "multiplex.cpu": Measure(
        what="Multiplex, Python client: scheduler CPU", unit="us/request", limit=ECHO_BIDI
    ),
    "multiplex.core_rate": Measure(
        what="Multiplex: requests/s of one core, by that CPU", unit="requests/s",
        more_is_better=True, floor=15_000, promise=30_000, stretch=60_000,
    ),
    "multiplex.rate": Measure(
        what="Multiplex: seen here, load and agent beside it", unit="requests/s",
        more_is_better=True, limit=ECHO_BIDI,
    ),
    "unary.cpu": Measure(
        what="Unary, generated stubs: scheduler CPU", unit="us/request", limit=ECHO_UNARY
    ),
    "unary.core_rate": Measure(
        what="Unary: requests/s of one core, by that CPU", unit="requests/s",
        more_is_better=True, floor=1_500, promise=2_500, stretch=4_000,
    ),
    "unary.rate": Measure(
        what="Unary: seen here, load and agent beside it", unit="requests/s", more_is_better=True,
        limit=ECHO_UNARY,
    ),
    "tokens.cpu": Measure(
        what="Tokens packed, 64 streams: scheduler CPU", unit="us/token", limit=ECHO_DELTAS
    ),
    "tokens.core_rate": Measure(
        what="Tokens packed: tokens/s of one core, by that CPU", unit="tokens/s",
        more_is_better=True, floor=60_000, promise=130_000, stretch=170_000,
    ),
    "tokens.rate": Measure(
        what="Tokens packed: seen here with engines that outrun it", unit="tokens/s",
        more_is_better=True,
    ),
    "deltas.cpu": Measure(
        what="One delta a message, 64 GenerateStream calls: scheduler CPU", unit="us/delta",
        limit=ECHO_STREAM,
    ),
    "deltas.core_rate": Measure(
        what="One delta a message: deltas/s of one core, by that CPU", unit="deltas/s",
        more_is_better=True, floor=6_000, promise=10_000, stretch=14_000,
    ),
    "latency.p50": Measure(
        what="Added latency at half load, p50", unit="ms",
        floor=4, promise=2, stretch=1, limit=ECHO_LATENCY,
    ),
    "latency.p99": Measure(
        what="Added latency at half load, p99", unit="ms",
        floor=15, promise=5, stretch=3, limit=ECHO_LATENCY,
    ),
    "batches.fill": Measure(
        what="Batch fill, 20 ms model, batch 32, one node", unit="of 32", more_is_better=True,
        floor=30, promise=31.5, stretch=31.9, limit="the engine's own batch limit",
    ),
    "batches.rate": Measure(
        what="Rate with that model", unit="requests/s", more_is_better=True,
        floor=1_450, promise=1_550, stretch=1_590, limit="batches back to back: 32 / 20 ms",
    ),
    "batches.rate_awake": Measure(
        what="Rate with that model, processors kept awake", unit="requests/s", more_is_better=True,
        floor=1_450, promise=1_550, stretch=1_590, limit="batches back to back: 32 / 20 ms",
    ),
    "batches.fill_ahead": Measure(
        what="Batch fill, look-ahead of one batch", unit="of 32", more_is_better=True,
        floor=30, promise=31.5, stretch=31.9, limit="the engine's own batch limit",
    ),
    "batches.rate_ahead": Measure(
        what="Rate, look-ahead of one batch", unit="requests/s", more_is_better=True,
        floor=1_450, promise=1_550, stretch=1_590, limit="batches back to back: 32 / 20 ms",
    ),
    "security.connection": Measure(
        what="TLS and token: connection and its first answer", unit="ms", limit=PLAIN
    ),
    "security.connection_cpu": Measure(
        what="TLS and token: connection, scheduler CPU", unit="us", limit=PLAIN
    ),
    "security.rpc": Measure(
        what="TLS and token: unary RPC on a standing connection, scheduler CPU", unit="us/RPC",
        limit=PLAIN,
    ),
    "security.multiplex": Measure(
        what="TLS and token: Multiplex, scheduler CPU", unit="us/request", limit=PLAIN
    ),
    "security.echo": Measure(
        what="Echo server over TLS, messages of 64: CPU", unit="us/request", limit=ECHO_TLS
    ),
    "security.check": Measure(what="Check of tenant, model and priority", unit="us/request"),
    "security.added": Measure(
        what="TLS and authentication add to a multiplexed request", unit="us/request",
        floor=2, promise=2, stretch=1,
    ),
    "security.limits": Measure(what="All five limits of a tenant", unit="us/request"),
    "tracing.cpu": Measure(
        what="Tracing, default sampling, 1,000 unary requests/s: scheduler CPU", unit="us/request",
        limit=UNTRACED,
    ),
    "tracing.full": Measure(
        what="Tracing, every request kept: scheduler CPU", unit="us/request", limit=UNTRACED
    ),
    "tracing.unsampled": Measure(
        what="Tracing, one that is not sampled: the tracer's work", unit="us/request"
    ),
    "tracing.share": Measure(
        what="Tracing, default sampling, 1,000 unary requests/s: it adds", unit="% of a core",
        floor=1, promise=1,
    ),
    "black_hole.cpu": Measure(
        what="Collector that never answers: scheduler CPU", unit="us/request", limit=UNTRACED
    ),
    "black_hole.ratio": Measure(
        what="Collector that never answers: CPU of tracing on over off", unit="",
        floor=1.05, promise=1.05,
    ),
    "black_hole.memory": Measure(
        what="Collector that never answers: memory at the end (RSS)", unit="MB", limit=UNTRACED
    ),
    "black_hole.exit": Measure(
        what="Collector that never answers: exit, nothing in flight", unit="s", floor=5, promise=5
    ),
    "memory.idle": Measure(
        what="Memory, idle with one agent (RSS)", unit="MB", floor=100, promise=60, stretch=60
    ),
    "memory.queued": Measure(
        what="Memory per queued request", unit="bytes", floor=2048, promise=1024, stretch=717
    ),
    "steady.growth": Measure(
        what="Memory (RSS), growth over the last 90,000 of 300,000 requests", unit="bytes/request",
        floor=20, promise=5, stretch=1,
    ),
    "jobs.large": Measure(
        what="Jobs of 500 items: stored and acknowledged", unit="items/s", more_is_better=True,
        limit=SQLITE,
    ),
    "jobs.small": Measure(
        what="Jobs of ten items, 64 at a time: stored and acknowledged", unit="items/s",
        more_is_better=True, limit=SQLITE,
    ),
    "jobs.results": Measure(
        what="Results of job items: stored", unit="results/s", more_is_better=True,
        limit=SQLITE_RESULTS,
    ),
    "jobs.run": Measure(
        what="Items of a job: fed, answered at once, results stored", unit="items/s",
        more_is_better=True, limit=SQLITE_RESULTS,
    ),
    "overload.attainment": Measure(
        what="Three times the capacity: attainment that priority 8 and above lose", unit="points",
        floor=5, promise=5, stretch=1,
    ),
    "overload.refusal": Measure(
        what="Three times the capacity: from sending to refusal, p99", unit="ms",
        floor=100, promise=100, stretch=20,
    ),
    "overload.hinted": Measure(
        what="Three times the capacity: refusals with reason and hint", unit="%",
        more_is_better=True, floor=100, promise=100, stretch=100,
    ),
    "overload.memory": Measure(
        what="Three times the capacity: growth of memory (RSS), first third to last", unit="MB",
        floor=20, promise=10, stretch=5,
    ),
    "overload.recovery": Measure(
        what="Three times the capacity: from its end until latencies are usual", unit="s",
        floor=10, promise=10, stretch=5,
    ),
    "start.cold": Measure(
        what="Cold start: process to ready line", unit="s",
        floor=1.5, promise=0.7, stretch=0.5, limit=ECHO_START,
    ),
    "core.request": Measure(
        what="Core alone: submit, dispatch, finish", unit="us/request",
        limit="the promise's whole budget: 1 s / 30,000",
    ),
    "core.request_32_nodes": Measure(
        what="Core alone, placement over 32 nodes", unit="us/request", limit="over one node"
    ),
    "core.request_100k_queued": Measure(
        what="Core alone, 100,000 waiting", unit="us/request", limit="1,000 waiting"
    ),
    "core.timer": Measure(what="Timer: set and cancel", unit="us"),
    "core.queue": Measure(what="Queue: push and cancel, 100,000 waiting", unit="us"),
    "core.relay": Measure(what="Relay: accept one delta", unit="us"),
    "core.record": Measure(what="Record of one decision", unit="us"),
    "core.objects": Measure(what="Objects of one request and its attempt", unit="us"),
}  # fmt: skip
