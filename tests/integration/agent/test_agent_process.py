"""A real agent process: how it says that it is up, drains on signals, and exits."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from tests.integration.agent.scripted_scheduler import ScriptedScheduler, text_item

pytestmark = pytest.mark.slow

Spawn = Callable[..., Awaitable["AgentProcess"]]
BAD_WORDS = ("Traceback", "was destroyed", "never retrieved", "ExecuteBatchError", "never awaited")


class AgentProcess:
    """`python -m node_agent`, in development mode so that it tells all it has to complain of."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        """The next line of standard output."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            return (await self.process.stdout.readline()).decode()

    async def end(self) -> tuple[int, str]:
        """Exit code and standard error."""
        async with asyncio.timeout(20):
            _, err = await self.process.communicate()
        return self.process.returncode or 0, err.decode()


@pytest.fixture
async def spawn(scheduler: ScriptedScheduler) -> AsyncIterator[Spawn]:
    processes: list[asyncio.subprocess.Process] = []

    async def start(*arguments: str, **environ: str) -> AgentProcess:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", "-m", "node_agent"),
            *("--scheduler", scheduler.address, "--node-id", "p1", "--log-format", "json"),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": "/nowhere", **environ},
        )
        processes.append(process)
        return AgentProcess(process)

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
            _, errors = await process.communicate()
            sys.stderr.write(f"the agent was still there; it had said:\n{errors.decode()}\n")


TWO_ENGINES = """
engines:
  - {id: simulated, kind: simulated, slots: 2}
  - {id: python, kind: python, model: fn, callable: "tests.unit.engines.python_functions:act"}
"""


def simulated(**options: object) -> list[str]:
    """Flags for one simulated engine."""
    flags = ["--engine", "simulated"]
    for name, value in options.items():
        flags += ["--engine-option", f"{name}={value}"]
    return flags


async def test_sigterm_finishes_running_work_and_exits_with_0(
    scheduler: ScriptedScheduler, spawn: Spawn
) -> None:
    """Behaviour 107, and 37: no task is lost on the way out."""
    agent = await spawn(*simulated(slots=1, latency_per_token="20ms"), "--managed")
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    assert "p1 is up" in await agent.line()
    assert session.hello.descriptor.labels == {"batchyard.managed": "true"}
    session.dispatch(text_item(1, "[[tokens=25]]"))
    await session.until(lambda: session.text(1))
    agent.process.send_signal(signal.SIGTERM)
    drain = await session.until(
        lambda: next((m.drain for m in session.messages if m.HasField("drain")), None)
    )
    assert drain.terminate
    assert drain.grace.seconds == 30
    assert drain.reason == "SIGTERM"
    result = await session.until(lambda: session.result(1))
    assert result.usage.output_tokens == 25
    session.send(results_acked=1)
    await session.until(lambda: session.closed)
    code, errors = await agent.end()
    assert code == 0
    assert not [word for word in BAD_WORDS if word in errors], errors
    events = [json.loads(line).get("event") for line in errors.splitlines()]
    assert events[0] == "config_loaded"
    assert {"session_up", "engine_ready", "drain", "node_drained"} <= set(events)


async def test_a_second_signal_sends_running_work_back_at_once(
    scheduler: ScriptedScheduler, spawn: Spawn
) -> None:
    """Behaviour 108: a stuck item does not hold up the exit."""
    agent = await spawn(*simulated(slots=1))
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall]]"))
    await session.until(lambda: any(m.updates for m in session.messages))
    agent.process.send_signal(signal.SIGINT)
    await session.until(lambda: any(m.HasField("drain") for m in session.messages))
    agent.process.send_signal(signal.SIGTERM)
    result = await session.until(lambda: session.result(1))
    assert result.refused
    assert result.error.reason == types.ERROR_REASON_NODE_DRAINING
    session.send(results_acked=1)
    code, errors = await agent.end()
    assert code == 0
    assert not [word for word in BAD_WORDS if word in errors], errors


async def test_an_agent_without_a_scheduler_exits_on_a_signal(spawn: Spawn) -> None:
    agent = await spawn(*simulated(), "--scheduler", "127.0.0.1:1")
    assert agent.process.stderr is not None
    async with asyncio.timeout(20):
        while b"session_failed" not in await agent.process.stderr.readline():
            pass
    agent.process.send_signal(signal.SIGTERM)
    code, errors = await agent.end()
    assert code == 0
    assert not [word for word in BAD_WORDS if word in errors], errors


async def test_an_agent_told_so_exits_when_its_parent_is_gone(
    scheduler: ScriptedScheduler, spawn: Spawn
) -> None:
    agent = await spawn(*simulated(), "--exit-with-stdin")
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated"))
    session.dispatch(text_item(1, "[[stall]]"))
    await session.until(lambda: any(m.updates for m in session.messages))
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    assert (await session.until(lambda: session.result(1))).refused
    session.send(results_acked=1)
    assert (await agent.end())[0] == 0


async def test_a_node_id_in_use_exits_with_3(scheduler: ScriptedScheduler, spawn: Spawn) -> None:
    """Behaviour 52."""
    agent = await spawn(*simulated())
    session = await scheduler.session(welcome=False)
    error = types.Error(reason=types.ERROR_REASON_NODE_ID_IN_USE, message="alive elsewhere")
    session.send(goodbye=node.Goodbye(error=error))
    code, errors = await agent.end()
    assert code == 3
    assert "'p1' is in use" in errors
    assert not [word for word in BAD_WORDS if word in errors], errors


class Collector(BaseHTTPRequestHandler):
    """Receives spans as OTLP over HTTP."""

    spans: ClassVar[queue.Queue[trace_pb2.Span]] = queue.Queue()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in trace_service_pb2.ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert names["service.name"] == "batchyard-agent"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.put(span)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


async def test_spans_of_sampled_items_arrive_over_otlp_and_of_others_none(
    scheduler: ScriptedScheduler, spawn: Spawn, tmp_path: Path
) -> None:
    """Behaviour 121: also of an engine that runs in a child process of the agent."""
    config = tmp_path / "agent.yaml"
    config.write_text(TWO_ENGINES)
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        agent = await spawn("--config", str(config), OTEL_EXPORTER_OTLP_ENDPOINT=url)
        session = await scheduler.session()
        await session.until(lambda: session.credits.get("simulated") == 2)
        await session.until(lambda: session.credits.get("python"))
        yes = types.TraceContext(traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01")
        no = types.TraceContext(traceparent=f"00-{'ef' * 16}-{'cd' * 8}-00")
        session.dispatch(text_item(1, trace=yes), text_item(2, trace=no))
        in_child = types.TraceContext(traceparent=f"00-{'12' * 16}-{'cd' * 8}-01")
        session.dispatch(text_item(3, trace=in_child), batch_id="c", engine_id="python", model="fn")
        await session.until(lambda: len(session.results) == 3)
        session.send(results_acked=3)
        agent.process.send_signal(signal.SIGTERM)
        assert (await agent.end())[0] == 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    spans: dict[str, trace_pb2.Span] = {}
    while not Collector.spans.empty():
        span = Collector.spans.get()
        spans[span.name] = span
    assert {n for n in spans if spans[n].trace_id.hex() == "ab" * 16} >= {
        "process simulated",
        "engine chat simulated",
    }
    assert {n for n in spans if spans[n].trace_id.hex() == "12" * 16} >= {
        "process fn",
        "engine chat fn",
    }
    assert {span.trace_id.hex() for span in spans.values()} == {"ab" * 16, "12" * 16}
    assert {"prefill", "decode"} <= set(spans)
    assert spans["process simulated"].parent_span_id.hex() == "cd" * 8


async def test_an_unreachable_collector_does_not_hold_up_the_exit(
    scheduler: ScriptedScheduler, spawn: Spawn
) -> None:
    """Behaviour 114: the flush at exit is bounded."""
    trace = types.TraceContext(traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01")
    agent = await spawn(*simulated(), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated"))
    session.dispatch(text_item(1, trace=trace))
    await session.until(lambda: session.result(1))
    session.send(results_acked=1)
    begun = asyncio.get_running_loop().time()
    agent.process.send_signal(signal.SIGTERM)
    code, _ = await agent.end()
    assert code == 0
    assert asyncio.get_running_loop().time() - begun < 5
