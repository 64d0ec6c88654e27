"""Does one trace tell the whole story? The spans of every kind of request, as a collector receives
them over OTLP from real processes: the caller, the scheduler and the agents.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import AsyncClient
from tests.integration.cluster import cluster, until
from tests.integration.otlp_receiver import Receiver, receiver
from tests.integration.telemetry import trace_kinds as kinds
from tests.integration.telemetry.trace_trees import Tree, client_spans

pytestmark = pytest.mark.slow

ON_NODE = """
        process m SERVER agent (received)
          engine chat m CLIENT agent
            prefill INTERNAL agent
            decode INTERNAL agent (first_token)"""
# The trees behind the caller's own span and the client's `chat` span, without events of progress.
TREES = {
    "unary": """
    Generate CLIENT client
      Generate SERVER scheduler
        schedule m INTERNAL scheduler (admitted)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler (running)
            process m SERVER agent (received)
              engine chat m CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)""",
    "streamed": """
    GenerateStream CLIENT client
      GenerateStream SERVER scheduler
        schedule m INTERNAL scheduler (admitted)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler (running, first_token)
            process m SERVER agent (received)
              engine chat m CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)
          deliver INTERNAL scheduler""",
    "multiplexed": """
    schedule m SERVER scheduler (admitted)
      queue wait INTERNAL scheduler
      attempt 1 CLIENT scheduler (running)"""
    + ON_NODE,
    "multiplexed_stream": """
    schedule m SERVER scheduler (admitted)
      queue wait INTERNAL scheduler
      attempt 1 CLIENT scheduler (running, first_token)"""
    + ON_NODE
    + """
      deliver INTERNAL scheduler""",
    "degraded": """
    Generate CLIENT client
      Generate SERVER scheduler
        schedule away INTERNAL scheduler (admitted, degraded)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler (running)
            process m SERVER agent (received)
              engine chat m CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)""",
    "cancelled": """
    GenerateStream CLIENT client !CANCELLED
      GenerateStream SERVER scheduler
        schedule m INTERNAL scheduler (admitted, cancel_requested)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler (running)
            process m SERVER agent (received)
              engine chat m CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)""",
    "cancelled_in_queue": """
    Generate CLIENT client !CANCELLED
      Generate SERVER scheduler
        schedule shelf INTERNAL scheduler (admitted, cancel_requested)
          queue wait INTERNAL scheduler""",
    "expired_in_queue": """
    Generate CLIENT client !RESOURCE_EXHAUSTED
      Generate SERVER scheduler
        schedule away INTERNAL scheduler !MAX_WAIT_EXCEEDED (admitted)
          queue wait INTERNAL scheduler""",
    "rejected": """
    Generate CLIENT client !NOT_FOUND
      Generate SERVER scheduler
        schedule nobody-has-it INTERNAL scheduler !MODEL_NOT_FOUND""",
    "refused": """
    Generate CLIENT client !INVALID_ARGUMENT
      Generate SERVER scheduler""",
    "failed": """
    Generate CLIENT client !ABORTED
      Generate SERVER scheduler
        schedule m INTERNAL scheduler !ATTEMPTS_EXHAUSTED (admitted)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler !ENGINE_ERROR (running)
            process m SERVER agent !ENGINE_ERROR (received)
              engine chat m CLIENT agent !ENGINE_ERROR
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)""",
    "hedged": """
    GenerateStream CLIENT client
      GenerateStream SERVER scheduler
        schedule h INTERNAL scheduler (admitted, hedged)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler (running)
            process h SERVER agent (received)
              engine chat h CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)
          attempt 2 CLIENT scheduler (running, first_token)
            process h SERVER agent (received)
              engine chat h CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)
          deliver INTERNAL scheduler""",
    "failed_over": """
    GenerateStream CLIENT client
      GenerateStream SERVER scheduler
        schedule f INTERNAL scheduler (admitted, failover)
          queue wait INTERNAL scheduler
          attempt 1 CLIENT scheduler !NODE_LOST (running, first_token, node_suspect, node_lost)
          deliver INTERNAL scheduler
          queue wait INTERNAL scheduler
          attempt 2 CLIENT scheduler (running, first_token)
            process f SERVER agent (received)
              engine chat f CLIENT agent
                prefill INTERNAL agent
                decode INTERNAL agent (first_token)""",
    "preempted": """
schedule j SERVER scheduler (admitted, preempted)
  queue wait INTERNAL scheduler
  attempt 1 CLIENT scheduler (running, first_token)
    process j SERVER agent (received)
      engine chat j CLIENT agent
        prefill INTERNAL agent
        decode INTERNAL agent (first_token, preempted)
  deliver INTERNAL scheduler
  queue wait INTERNAL scheduler
  attempt 2 CLIENT scheduler (running, first_token)
    process j SERVER agent (received)
      engine chat j CLIENT agent
        prefill INTERNAL agent
        decode INTERNAL agent (first_token)""",
    "job_item": """
schedule m SERVER scheduler (admitted)
  queue wait INTERNAL scheduler
  attempt 1 CLIENT scheduler (running, first_token)
    process m SERVER agent (received)
      engine chat m CLIENT agent
        prefill INTERNAL agent
        decode INTERNAL agent (first_token)
  deliver INTERNAL scheduler""",
    "killed_client": """
GenerateStream SERVER scheduler
  schedule m INTERNAL scheduler (admitted, cancel_requested)
    queue wait INTERNAL scheduler
    attempt 1 CLIENT scheduler (running, first_token)
      process m SERVER agent (received)
        engine chat m CLIENT agent
          prefill INTERNAL agent
          decode INTERNAL agent (first_token)
    deliver INTERNAL scheduler""",
}  # fmt: skip
OWN_ROOT = ("preempted", "job_item", "killed_client")
CHAT = {
    "degraded": "chat away CLIENT client",
    "cancelled": "chat m CLIENT client !CANCELLED_BY_CLIENT",
    "cancelled_in_queue": "chat shelf CLIENT client !CancelledError",
    "expired_in_queue": "chat away CLIENT client !MAX_WAIT_EXCEEDED",
    "rejected": "chat nobody-has-it CLIENT client !MODEL_NOT_FOUND",
    "refused": "chat m CLIENT client !INVALID_ARGUMENT",
    "failed": "chat m CLIENT client !ATTEMPTS_EXHAUSTED",
    "failed_over": "chat f CLIENT client",
    "hedged": "chat h CLIENT client",
}


def wanted(kind: str) -> list[str]:
    """The whole tree of a kind, a span a line."""
    lines = TREES[kind].strip("\n").split("\n")
    if kind in OWN_ROOT:
        return lines
    chat = CHAT.get(kind, "chat m CLIENT client")
    return [f"caller of {kind} INTERNAL client", f"  {chat}", *lines]


async def test_every_kind_of_request_leaves_a_whole_tree(tmp_path: Path) -> None:
    """Behaviour 118: sessions of agents work as without tracing, and are no spans themselves."""
    async with receiver() as seen, client_spans(seen):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": seen.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        settings = (*kinds.SETTINGS, f"state_dir={tmp_path / 'state'}")
        async with cluster(env=env, settings=settings) as running:
            address = running.addresses["client"]
            async with (
                AsyncClient(address, transport="unary") as unary,
                AsyncClient(address, transport="multiplex") as multiplex,
            ):
                world = await kinds.World.prepare(running, unary, multiplex)
                ids = await kinds.one_of_each(world)
            await _until_all_there(seen, ids)
    trees = {kind: Tree(seen, trace_id) for kind, trace_id in ids.items()}
    for kind, tree in trees.items():
        assert tree.lines() == wanted(kind), f"{kind}:\n{tree}"
        assert not tree.faults(), f"{kind}: {tree.faults()}\n{tree}"
    stopped = [s.name for s in seen.spans if "SCHEDULER_STOPPED" in s.attributes.values()]
    assert not stopped, "these were open until the end"
    assert not [s.name for s in seen.spans if "NodeService" in s.name]
    told = "\n".join(line for line in running.scheduler.lines if "request_finished" in line)
    assert any(trace_id in told for trace_id in ids.values()), "logs can be joined with traces"
    _check_links(trees)
    _check_attributes(trees)


async def _until_all_there(seen: Receiver, ids: dict[str, str]) -> None:
    """As many spans as there are to be, and of batches, streams and jobs those they link to."""

    def missing() -> list[str]:
        trees = {kind: Tree(seen, trace_id) for kind, trace_id in ids.items()}
        few = [f"{k}:\n{t}" for k, t in trees.items() if len(t.spans) < len(wanted(k))]
        return few + [f for t in trees.values() for f in t.faults() if "never came" in f]

    async def none() -> bool:
        return not missing()

    try:
        await until(none)
    except AssertionError:
        raise AssertionError("\n".join(missing())) from None


def _check_links(trees: dict[str, Tree]) -> None:
    """What no tree shows: to streams, jobs, and attempts that were replaced."""
    named = {span.span_id: span.name for span in trees["unary"].seen.spans}

    def links(kind: str) -> list[str]:
        return [named[link] for link in trees[kind].schedule.links]

    for kind in ("multiplexed", "multiplexed_stream"):
        assert links(kind) == ["batchyard.v1.SchedulerService/Multiplex"]
    for kind in ("job_item", "preempted"):
        assert links(kind) == ["batchyard.v1.SchedulerService/CreateJob"]
    for kind in ("failed_over", "preempted"):
        first, second = trees[kind].named("attempt")
        before, again = trees[kind].named("queue wait")
        assert (before.links, again.links) == ([], [first.span_id])
        assert first.span_id in second.links


def _check_attributes(trees: dict[str, Tree]) -> None:
    """Each of what `docs/tracing.md` names, where it first appears."""
    for kind, span, attribute, value in SAID:
        found = trees[kind].named(span)[-1].attributes
        assert attribute in found, (kind, span, attribute, sorted(found))
        assert value is ANY or found[attribute] == value, (kind, span, attribute, found[attribute])
    for kind, tree in trees.items():
        request_id = {s.attributes.get("batchyard.request.id") for s in tree.spans} - {None}
        assert len(request_id) == 1, kind


ANY = object()
SAID = [
    ("streamed", "chat", "gen_ai.provider.name", "batchyard"),
    ("streamed", "chat", "gen_ai.response.time_to_first_chunk", ANY),
    ("streamed", "chat", "gen_ai.usage.output_tokens", 30),
    ("streamed", "chat", "batchyard.node.id", "a"),
    ("streamed", "batchyard.v1", "network.peer.address", "127.0.0.1"),
    ("streamed", "batchyard.v1", "rpc.status_code", "OK"),
    ("streamed", "schedule", "batchyard.queue.depth", ANY),
    ("streamed", "schedule", "batchyard.cost.tokens", ANY),
    ("streamed", "schedule", "gen_ai.usage.output_tokens", 30),
    ("streamed", "queue wait", "batchyard.queue.priority.effective", ANY),
    ("streamed", "queue wait", "batchyard.queue.position", ANY),
    ("streamed", "queue wait", "batchyard.queue.chosen_by", ANY),
    ("streamed", "queue wait", "batchyard.queue.outcome", "dispatched"),
    ("streamed", "attempt", "batchyard.node.score", ANY),
    ("streamed", "attempt", "batchyard.node.candidates", 1),
    ("streamed", "attempt", "server.address", ANY),
    ("streamed", "attempt", "batchyard.attempt.outcome", "succeeded"),
    ("streamed", "process", "batchyard.session.epoch", ANY),
    ("streamed", "engine", "gen_ai.provider.name", "simulated"),
    ("streamed", "decode", "batchyard.tokens_per_second", ANY),
    ("streamed", "deliver", "batchyard.bytes", 290),
    ("streamed", "deliver", "batchyard.coalesced", ANY),
    ("streamed", "deliver", "batchyard.stall_ms", ANY),
    ("unary", "schedule", "batchyard.priority", 8),
    ("degraded", "schedule", "batchyard.degrade_reason", "max_wait"),
    ("degraded", "schedule", "batchyard.served_model", "m"),
    ("expired_in_queue", "queue wait", "batchyard.queue.outcome", "expired"),
    ("cancelled_in_queue", "queue wait", "batchyard.queue.outcome", "cancelled"),
    ("refused", "batchyard.v1", "batchyard.error.reason", "INVALID_ARGUMENT"),
    ("refused", "batchyard.v1", "rpc.status_code", "INVALID_ARGUMENT"),
    ("failed_over", "queue wait", "batchyard.queue.reason", "failover"),
    ("failed_over", "attempt", "batchyard.resume.mode", "continue"),
    ("failed_over", "attempt", "batchyard.resume.bytes", ANY),
    ("failed_over", "attempt 1", "batchyard.output_tokens", ANY),
    ("failed_over", "schedule", "gen_ai.usage.output_tokens", 30),
    ("hedged", "attempt 2", "batchyard.hedge", True),
    ("hedged", "attempt 1", "batchyard.attempt.outcome", "revoked"),
    ("preempted", "queue wait", "batchyard.queue.reason", "preempted"),
    ("preempted", "schedule", "batchyard.preemptions", 1),
    ("preempted", "schedule", "batchyard.request.class", "job"),
]
