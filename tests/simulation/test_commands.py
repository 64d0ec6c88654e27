"""`batchyard simulate|plan|replay`: what they answer, in tables, JSON and pages."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from scheduler_service.recording.file import RecordingFile
from simulator.commands import whole, workloads
from simulator.commands.command_line import main
from simulator.workload.errors import TraceError
from simulator.workload.synthetic import workload

FEW = ("--workload", "poisson:rate=6,lasts=60s,lengths=500/100", "-q")
NODES = ("--nodes", "2xslots-70B")
TRACES = {
    "azure.csv": """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
""",
    "mooncake.jsonl": """\
{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}
{"timestamp": 9000, "input_length": 90, "output_length": 3, "hash_ids": [1, 2]}
""",
    "qwen.jsonl": """\
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 9, "output_length": 5}
""",
    "burst.csv": """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,10,2,12,Conversation log
""",
    "servegen.csv": """\
client,window_start_s,rate_rps,iat_cv,pattern,p1,p2
7,0,0.02,2.0,Gamma,0.5,1.0
""",
}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert main([*arguments, "-o", "json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that was not said right says."""
    assert main(arguments) == 2
    return capsys.readouterr().err


def lists(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, str]]]:
    """What the command writes into a pipe: rows by the name of their list; "": there is one."""
    assert main(arguments) == 0
    found: dict[str, list[dict[str, str]]] = {}
    name = ""
    keys: list[str] = []
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("# "):
            name, keys = line[2:], []
        elif not keys:
            keys = line.split("\t")
            found[name] = []
        else:
            found[name].append(dict(zip(keys, line.split("\t"), strict=True)))
    return found


def run_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [run["summary"] for run in document["runs"] if run["name"] == name]
    return found  # type: ignore[no-any-return]


def test_policies_are_compared_on_the_same_requests(capsys: pytest.CaptureFixture[str]) -> None:
    two = ("--policy", "default", "--policy", "policies.order=fifo")
    document = answer(capsys, "simulate", *FEW, *NODES, *two)
    aged, fifo = (run["summary"] for run in document["runs"])
    assert aged["requests"] == fifo["requests"] == document["requests"] > 300
    assert aged["priorities"]["10"]["attained"] > fifo["priorities"]["10"]["attained"] + 0.2
    assert document["objective_s"] == {"wait": 3.0}
    again = answer(capsys, "simulate", *FEW, *NODES, *two)
    assert again == document
    other = answer(capsys, "simulate", *FEW, *NODES, *two, "--seed", "1")
    assert other["runs"][0]["summary"]["log_digest"] != aged["log_digest"]


def test_a_pipe_gets_rows_of_tab_separated_values(capsys: pytest.CaptureFixture[str]) -> None:
    two = ("--policy", "default", "--policy", "policies.order=fifo")
    found = lists(capsys, "simulate", *FEW, *NODES, *two)
    assert list(found) == ["runs", "priorities", "tenants"]
    document = answer(capsys, "simulate", *FEW, *NODES, *two)
    for row, run in zip(found["runs"], document["runs"], strict=True):
        assert row["name"] == run["name"]
        assert float(row["attained"]) == run["summary"]["all"]["attained"]
        assert float(row["wait_p99_s"]) == run["summary"]["all"]["wait"]["p99"]
        assert int(row["rejected"]) == run["summary"]["outcomes"]["rejected"]
    assert [row["priority"] for row in found["priorities"]] == ["10", "7", "5", "1"] * 2
    assert main(["simulate", *FEW, *NODES, *two, "-o", "name"]) == 0
    assert capsys.readouterr().out == "default\npolicies.order=fifo\n"


def test_wide_tables_have_every_tenant_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for form in ("table", "wide"):
        assert main(["simulate", *FEW, *NODES, "-o", form]) == 0
        shown.append(capsys.readouterr().out.count("tenant"))
    assert shown == [3, 10]


def test_the_live_scheduler_s_own_file_is_a_policy_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Addresses and the like are no hindrance; what is wrong is told at once, with its line."""
    good = tmp_path / "live.yaml"
    good.write_text(
        "listen: {client_port: 7000}\nlog: {level: debug}\npolicies: {order: strict}\n"
        "queue: {floor_every: 0}\ntask_types: {chat: {max_wait: 500ms}}\n"
    )
    document = answer(
        capsys, "simulate", *FEW, *NODES, "--policy", str(good), "--task-type", "chat"
    )
    summary = run_of(document, "live")
    assert summary["reasons"]["MAX_WAIT_EXCEEDED"] > 10
    assert summary["all"]["wait"]["most"] <= 0.51
    bad = tmp_path / "bad.yaml"
    bad.write_text("policies: {order: fastest}\nqueue: {floor_evry: 8}\n")
    told = refused(capsys, "simulate", *FEW, *NODES, "--policy", str(bad))
    assert "fastest" in told
    assert "floor_evry" in told
    assert "bad.yaml:2" in told


def test_a_small_model_stands_in_where_the_file_allows_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "steps_down.yaml"
    file.write_text("task_types: {other: {max_wait: 1s, degrade: [small]}}\n")
    nodes = ("--nodes", "1xslots-70B=large,1xH100x1-7B-2025=small")
    document = answer(capsys, "simulate", *FEW, *nodes, "--policy", str(file))
    summary = run_of(document, "steps_down")
    assert summary["degraded"] > 50
    assert set(summary["cost_per_model"]) == {"large", "small"}


def test_killed_nodes_and_scaling_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    killed = answer(capsys, "simulate", *FEW, "--nodes", "4xslots-70B", "--kill", "1@20s+10s")
    (summary,) = (run["summary"] for run in killed["runs"])
    assert summary["failovers"] >= 4
    assert summary["outcomes"]["succeeded"] == summary["requests"]
    nodes = killed["runs"][0]["time"]["nodes"]
    assert min(nodes) == 3
    assert nodes[-1] == 4
    scaled = answer(capsys, "simulate", *FEW, *NODES, "--autoscale", "2..8")
    assert 2 < max(scaled["runs"][0]["time"]["nodes"]) <= 8


@pytest.mark.parametrize("name", TRACES)
def test_traces_of_every_published_form_are_taken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    text = TRACES[name]
    plain, zipped = tmp_path / name, tmp_path / f"{name}.gz"
    plain.write_text(text)
    zipped.write_bytes(gzip.compress(text.encode()))
    first = answer(capsys, "simulate", "--trace", str(plain), *NODES)
    second = answer(capsys, "simulate", "--trace", str(zipped), *NODES)
    assert first["requests"] == second["requests"] > 0
    assert first["runs"][0]["summary"]["outcomes"]["succeeded"] == first["requests"]


@pytest.mark.parametrize(
    "spec",
    [
        "poisson:rate=2,lasts=20s",
        "gamma:rate=2,cv=2,lasts=20s,lengths=sharegpt",
        "steps:pieces=1/10s+4/10s,lengths=10/10",
        "bursts:base=1,peak=8,every=10s,burst=2s,lasts=20s",
        "servegen:scale=0.01,lasts=20s",
    ],
)
def test_synthetic_workloads_last_as_long_as_stated(spec: str) -> None:
    arrivals = list(workload(spec, seed=3))
    assert arrivals
    assert arrivals[-1].at < 20_000_000_000
    assert [a.at for a in workload(spec, seed=3)] == [a.at for a in arrivals]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("uniform:rate=1", "known: poisson"),
        ("poisson", "needs rate"),
        ("poisson:rate=0", "no number above 0"),
        ("poisson:rate=1,last=5s", "has no 'last'"),
        ("poisson:rate=1,lasts=5", "as 500ms"),
        ("steps:pieces=5", "not RATE/TIME"),
    ],
)
def test_what_is_no_workload_is_said(spec: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        list(workload(spec))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--nodes", "2xB200"), "known:"),
        (("--nodes", "999999999xslots-70B"), "more than 100,000 nodes"),
        (("--nodes", "0xslots-70B"), "no nodes"),
        (("--nodes", "1xslots-70B,0xslots-70B", "--autoscale", "1..2"), "no nodes"),
        (("--nodes", "0xslots-70B", "--autoscale", "0..2"), "known: none"),
        (("--nodes", "2xslots-70B@0"), "1 slot or more"),
        ((*NODES, "--model", "nope"), "no node serves 'nope'; known: m"),
        ((*NODES, "--task-type", "nope"), "known: chat, classification"),
        ((*NODES, "--priorities", "10:50%"), "are 0.5 in all: they are to be 1, or 100%"),
        ((*NODES, "--priorities", "10:3,5:1"), "are 4 in all"),
        ((*NODES, "--priorities", "10:nan"), "nan in all"),
        ((*NODES, "--priorities", "10:50%,10:50%"), "10 has two shares"),
        ((*NODES, "--speed", "1e-300"), "from 0.001"),
        ((*NODES, "--kill", "0@10s*1.2.3"), "above 0"),
        ((*NODES, "--kill", "0@10s*9999999"), "at most 1,000"),
        (("--nodes", "2xslots-70B", "--kill", "2@10s"), "no such node of 2, the first is 0"),
        ((*NODES, "--kill", "0@10s*0"), "above 0"),
        ((*NODES, "--tenants", "999999999"), "1,000,000"),
        ((*NODES, "--kill", "soon"), "2@600s"),
        ((*NODES, "--policy", "absent.yaml"), "no file absent.yaml"),
        ((*NODES, "--policy", "fifo"), "policies.order=fifo"),
        ((*NODES, "--autoscale", "many"), "2..12"),
        ((*NODES, "--priorities", "11:100%"), "1..10"),
        ((*NODES, "--predict", "magic"), "oracle"),
        ((*NODES, "--from", "1h"), "no request"),
        ((*NODES, "--slo-wait", "3"), "as 500ms"),
        ((*NODES, "--record", "x", "--policy", "default", "--policy", "default"), "one policy"),
    ],
)
def test_what_is_said_wrong_is_told_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert why in refused(capsys, "simulate", *FEW, *arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--trace", "", *NODES), "there is no trace ''"),
        (("--workload", "gamma:rate=1,cv=1e9", *NODES), "cv=1e9 is not from 0.01 to 100"),
        (("--workload", "poisson:rate=1e12", *NODES), "is not from 1e-09 to 1e+09"),
    ],
)
def test_requests_that_cannot_be_are_told(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert why in refused(capsys, "simulate", *arguments)


def test_more_requests_than_memory_holds_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "MOST_REQUESTS", 100)
    assert "more than 100 requests" in refused(capsys, "simulate", *FEW, *NODES)


def test_shares_may_be_rounded_to_whole_percents(capsys: pytest.CaptureFixture[str]) -> None:
    thirds = ("--priorities", "10:33%,5:33%,1:33%")
    assert answer(capsys, "simulate", *FEW, *NODES, *thirds)["requests"] > 300


def test_a_fleet_may_begin_with_none_where_the_model_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = ("--policy", "models=[{name: m}]", "--autoscale", "0..4")
    document = answer(capsys, "simulate", *FEW, "--nodes", "0xslots-70B", *policy)
    assert document["runs"][0]["summary"]["outcomes"]["succeeded"] > 300


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--kinds", "3xslots-70B"), "a kind alone"),
        (("--kinds", "slots-70B", "--model", "nope"), "no node serves 'nope'; known: m"),
        (("--kinds", "slots-70B", "--task-type", "nope"), "known: chat, classification"),
    ],
)
def test_a_plan_that_is_said_wrong_is_told(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert why in refused(capsys, "plan", *FEW, *arguments)


def test_an_interrupted_run_leaves_files_as_they_were_and_says_so(tmp_path: Path) -> None:
    """Interrupted when the bar on the terminal shows that the run has begun."""
    recording, out = tmp_path / "r.rec", tmp_path / "o.json"
    out.write_text("before")
    arguments = ("--workload", "poisson:rate=30,lasts=15m,lengths=100/100", *NODES)
    command = [sys.executable, "-m", "simulator.commands", "simulate", *arguments,
               "--record", str(recording), "--out", str(out)]  # fmt: skip
    screen, terminal = os.openpty()
    with subprocess.Popen(command, stderr=terminal, env={**os.environ, "COLUMNS": "200"}) as run:
        os.close(terminal)
        shown = b""
        while b"default" not in shown:
            shown += os.read(screen, 4096)
        assert [path.name for path in tmp_path.glob("*.part")] == ["r.rec.part"]
        run.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while text := os.read(screen, 4096):
                shown += text
    os.close(screen)
    assert run.returncode == 130
    assert f"interrupted: not written: {recording}, {out}" in shown.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]
    assert out.read_text() == "before"


def test_a_recording_replaces_no_device_and_keeps_the_one_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipe, path = tmp_path / "pipe", tmp_path / "core.rec"
    os.mkfifo(pipe)
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", *FEW, *NODES, "--record", str(pipe)])
    assert "is no file" in capsys.readouterr().err
    with pytest.raises(FileExistsError):
        RecordingFile(pipe, max_bytes=1 << 20)
    path.write_text("before")
    assert main(["simulate", *FEW, *NODES, "--record", str(path)]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["core.rec", "core.rec.1", "pipe"]
    assert (tmp_path / "core.rec.1").read_text() == "before"


def test_a_recording_that_cannot_be_written_on_ends_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "RECORDING_BYTES", 4096)
    path = tmp_path / "core.rec"
    assert main(["simulate", *FEW, *NODES, "--record", str(path)]) == 1
    assert f"--record {path}: it is full" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--html", "--out", "--record"])
def test_a_file_that_cannot_be_written_is_told_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    for file, why in ((tmp_path / "absent" / "x", "there is no folder"), (tmp_path, "is a folder")):
        with pytest.raises(SystemExit, match="2"):
            main(["simulate", *FEW, *NODES, option, str(file)])
        assert why in capsys.readouterr().err


class _References(HTMLParser):
    """Collects what a page would load from elsewhere, and its drawings."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset")]


def drawings(page: str) -> list[ET.Element]:
    """Every figure's plot, which is well formed."""
    return [ET.fromstring(text) for text in re.findall(r"<svg viewBox.*?</svg>", page)]


def check_page(page: str) -> None:
    """It needs nothing else, fits both schemes, and no number of it is broken."""
    references = _References()
    references.feed(page)
    assert references.found == []
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    for drawing in drawings(page):
        text = ET.tostring(drawing, encoding="unicode")
        assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
        for element in drawing.iter():
            for name in ("x1", "x2", "cx", "x"):
                assert -1 <= float(element.get(name, "0")) <= 521, (element.tag, name)


def test_the_report_is_one_page_with_every_plot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    html, out = tmp_path / "report.html", tmp_path / "report.json"
    files = ("--html", str(html), "--out", str(out))
    two = ("--policy", "default", "--policy", "policies.order=<fifo>")
    assert "fifo" in refused(capsys, "simulate", *FEW, *NODES, *two)
    two = (*two[:3], "policies.order=fifo")
    assert main(["simulate", *FEW, *NODES, *two, "--kill", "0@20s+5s", *files, "-o", "table"]) == 0
    table = capsys.readouterr().out
    assert "objective met" in table
    assert "p10: objective met" in table
    page = html.read_text(encoding="utf-8")
    check_page(page)
    titles = [drawing.get("aria-label") for drawing in drawings(page)]
    assert titles == [
        "Queue", "Longest wait", "Utilisation", "Nodes", "Waits by priority", "Wait",
        "Time to the first token", "Total latency",
    ]  # fmt: skip
    assert len(json.loads(out.read_text())["runs"]) == 2


def test_a_plan_finds_the_fewest_nodes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    html = tmp_path / "plan.html"
    kinds = ("--kinds", "slots-70B,H100-70B", "--price", "slots-70B=10")
    document = answer(
        capsys, "plan", *FEW, *kinds, "--attain", "95%", "--most", "16", "--html", str(html)
    )
    best = document["best"]
    for curve in document["curves"]:
        points = {point["nodes"]: point for point in curve["points"]}
        found = curve["answer"]["nodes"]
        assert points[found]["attained"] >= 0.95
        assert found == 1 or points[found - 1]["attained"] < 0.95
        assert found + 1 in points
    prices = [curve["answer"]["price_per_hour"] for curve in document["curves"]]
    assert best["price_per_hour"] == min(prices)
    page = html.read_text(encoding="utf-8")
    check_page(page)
    assert f"{best['nodes']} x {best['kind']}" in page
    assert len(drawings(page)) == 4


def test_a_plan_that_cannot_be_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", *FEW, "--kinds", "slots-70B", "--most", "1")
    document = answer(capsys, *arguments, code=1)
    assert document["best"] is None
    assert main([*arguments, "-o", "name"]) == 1
    assert capsys.readouterr().out == ""
    assert main([*arguments, "-o", "table"]) == 1
    assert "raise --most" in capsys.readouterr().out


def test_two_kinds_together_are_tried_where_they_would_cost_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A large node is too much for the rest of the load, which a small one serves."""
    kinds = ("--kinds", "slots-70B@20,slots-70B@6", "--price", "slots-70B@20=20", "--price",
             "slots-70B@6=11")  # fmt: skip
    arguments = ("plan", *FEW, *kinds, "--attain", "95%", "--most", "8")
    alone, mixed = answer(capsys, *arguments), answer(capsys, *arguments, "--mix")
    assert mixed["curves"][:2] == alone["curves"]
    (curve,) = mixed["curves"][2:]
    assert curve["kind"] == "slots-70B@20 + slots-70B@6"
    limit = alone["best"]["price_per_hour"]
    assert all(point["price_per_hour"] < limit for point in curve["points"])
    assert mixed["best"] == curve["answer"]
    assert mixed["best"]["attained"] >= 0.95
    assert main([*arguments, "--mix", "-o", "name"]) == 0
    fleet = capsys.readouterr().out.strip()
    again = answer(capsys, "simulate", *FEW, "--nodes", fleet)
    assert again["runs"][0]["summary"]["all"]["attained"] == mixed["best"]["attained"]
    (rows,) = lists(capsys, *arguments, "--mix").values()
    assert [row["fleet"] for row in rows if row["best"] == "true"] == [fleet]


@pytest.fixture
def recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Of a run with a node that dies."""
    path = tmp_path / "core.rec"
    arguments = (*FEW, "--nodes", "3xslots-70B", "--kill", "1@20s+10s", "--record", str(path))
    assert main(["simulate", *arguments]) == 0
    capsys.readouterr()
    return path


def test_a_recording_is_replayed_to_the_same_decisions(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(recording), "-o", "table"]) == 0
    assert capsys.readouterr().out.startswith("identical: ")
    (only,) = lists(capsys, "replay", str(recording)).values()
    assert only[0]["identical"] == "true"
    assert only[0]["file"] == str(recording)
    assert answer(capsys, "replay", str(recording))["identical"] is True


def test_a_decision_that_is_not_made_again_is_told(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(recording.read_bytes()).decode()
    changed = re.sub('to n0001/e0( [^"]*#\\d+\\.1=)', r"to n0009/e0\1", lines, count=1)
    assert changed != lines
    recording.write_bytes(gzip.compress(changed.encode()))
    assert main(["replay", str(recording), "-o", "table"]) == 1
    told = capsys.readouterr().out
    assert "different after" in told
    assert "n0009/e0" in told
    assert re.search(r"#(\d+) is r\1", told)


def test_another_policy_is_compared_with_what_happened(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "compare.html"
    policy = ("--policy", "policies.order=fifo", "--html", str(html))
    document = answer(capsys, "replay", str(recording), *policy)
    happened, same, fifo = (run["summary"] for run in document["runs"])
    assert happened["outcomes"] == same["outcomes"]
    for p in ("10", "1"):
        assert same["priorities"][p]["wait"] == happened["priorities"][p]["wait"]
    assert fifo["priorities"]["10"]["wait"]["p99"] > 2 * same["priorities"]["10"]["wait"]["p99"]
    first = document["first_differences"]["policies.order=fifo"]
    assert first["recorded"] != first["replayed"]
    check_page(html.read_text(encoding="utf-8"))


def test_a_recording_without_requests_is_replayed_but_not_compared(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(recording.read_bytes()).splitlines(keepends=True)
    recording.write_bytes(gzip.compress(b"".join(lines[:2])))  # what it is of, and the first step
    assert answer(capsys, "replay", str(recording))["requests"] == 0
    assert main(["replay", str(recording), "--policy", "policies.order=fifo"]) == 1
    assert "has no request: there is nothing to compare" in capsys.readouterr().err


def test_what_is_no_recording_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "x.txt"
    other.write_text("x")
    assert main(["replay", str(other)]) == 1
    assert "no recording" in capsys.readouterr().err
