"""`batchyard demo` as a newcomer runs it: a process, its output, its files and its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchyard.cli.dev import engines
from node_agent.engines.simulated_text import check_text, is_seamless

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMAND = [sys.executable, "-m", "batchyard.cli", "demo"]
REPORT_KEYS = {
    "report_name", "generate_time", "window_s", "queue_size", "oldest_wait_ms", "nodes", "logs",
}  # fmt: skip
HAS_MODEL = not engines.missing_parts() and engines.has_weights()


@dataclass(frozen=True)
class Run:
    """A demo that has ended."""

    code: int
    out: str
    folder: Path

    def file(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


def play(folder: Path, *arguments: str) -> Run:
    # What a user's shell may hold must neither break the demo nor redirect its traces.
    environ = {
        **os.environ,
        "OTEL_SDK_DISABLED": "true",
        "BATCHYARD_AGENT__DRAIN_GRACE": "nonsense",
    }
    done = subprocess.run(
        [*COMMAND, "--folder", str(folder), *arguments],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    print(done.stdout, done.stderr, file=sys.stderr)  # shown by pytest when a test fails
    return Run(done.returncode, done.stdout, folder)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play(tmp_path_factory.mktemp("simulated"), "--engine", "simulated")


def test_simulated_demo_keeps_every_promise(simulated: Run) -> None:
    assert simulated.code == 0
    assert len(re.findall(r"^  ✓ ", simulated.out, re.MULTILINE)) == 9
    assert "✗" not in simulated.out
    assert re.search(r"^All 9 promises held, in \d+ s\.$", simulated.out, re.MULTILINE)


def test_output_in_a_pipe_is_plain_lines_that_tell_the_story(simulated: Run) -> None:
    assert "\x1b" not in simulated.out
    for told in ("waiting ", "requests wait, the most urgent go first", "SIGKILL of primary-",
                 "scale_out", "node_lost", "failover", "degraded", "rejected"):  # fmt: skip
        assert re.search(rf"^\[ *\d+\.\d s\] .*{told}", simulated.out, re.MULTILINE), told
    assert str(simulated.folder / "trace.json") in simulated.out


def test_batch_of_four_is_faster_than_one_by_one(simulated: Run) -> None:
    gain = re.search(r"together [\d.]+ s: ([\d.]+)\s+times the throughput", simulated.out)
    assert gain is not None
    assert float(gain[1]) > 1.5


def test_report_file_has_the_keys_of_the_report(simulated: Run) -> None:
    report = simulated.file("report.json")
    assert report.keys() >= REPORT_KEYS
    states = {node["node_id"]: node["state"] for node in report["nodes"]}
    assert sorted(states.values()) == ["healthy", "healthy", "healthy", "lost"]
    assert report["totals"]["failovers"] >= 1
    assert "submit" in {event["event"] for event in report["logs"]}


def test_answers_are_whole_and_continued_ones_have_no_seam(simulated: Run) -> None:
    answers = [a for a in simulated.file("answers.json") if a["error"] is None]
    assert all(is_seamless(answer["answer"]) for answer in answers)
    continued = [answer for answer in answers if len(answer["pieces"]) > 1]
    assert continued
    for answer in continued:
        assert len(check_text(answer["answer"])) == 2  # two attempts wrote it, and each knew where
        assert [a["state"] for a in answer["attempts"]] == ["lost", "succeeded"]


def test_trace_file_is_otlp_json_with_one_tree_for_each_request(simulated: Run) -> None:
    trace = simulated.file("trace.json")
    assert list(trace) == ["resourceSpans"]
    spans: dict[str, dict[str, Any]] = {}
    for group in trace["resourceSpans"]:
        for scope in group["scopeSpans"]:
            spans |= {span["spanId"]: span for span in scope["spans"]}
    assert all(re.fullmatch(r"[0-9a-f]{16}", span_id) for span_id in spans)
    assert all(re.fullmatch(r"[0-9a-f]{32}", span["traceId"]) for span in spans.values())
    assert all(span["kind"] in range(1, 6) for span in spans.values())
    answered = [a for a in simulated.file("answers.json") if a["error"] is None]
    for answer in answered:
        tree = [span for span in spans.values() if span["traceId"] == answer["trace_id"]]
        roots = [span for span in tree if span.get("parentSpanId") not in spans]
        assert [root["name"].split()[0] for root in roots] == ["chat"]  # the client's


def test_json_output_is_one_document_for_programs(tmp_path: Path) -> None:
    run = play(tmp_path, "--engine", "simulated", "-o", "json")
    summary = json.loads(run.out)
    assert run.code == 0
    assert summary["held"] is True
    assert len(summary["checks"]) == 9
    assert Path(summary["files"]["trace"]).exists()


def test_interrupt_stops_every_process(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--engine", "simulated", "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "The peak" in line:
            break
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 4
    demo.send_signal(signal.SIGINT)
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 130, out + err
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.skipif(not HAS_MODEL, reason="the small model's package is not installed")
def test_real_demo_keeps_every_promise_within_two_minutes(tmp_path: Path) -> None:
    run = play(tmp_path)
    assert run.code == 0
    verdict = re.search(r"^All 9 promises held, in (\d+) s\.$", run.out, re.MULTILINE)
    assert verdict is not None
    assert int(verdict[1]) < 120
    assert "One answer of two nodes" in run.out
