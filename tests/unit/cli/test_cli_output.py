"""Forms of output: tables for people, tab-separated values, JSON, YAML and names for programs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
import yaml
from rich.cells import cell_len
from rich.console import Console

from batchyard.cli import output
from batchyard.cli.bars import gauge, spark
from batchyard.cli.columns import Column, duration, percent, printable, share
from batchyard.cli.durations import format_ms
from batchyard.cli.grid import Grid, without_middle
from batchyard.cli.screens import report_screen, status_screen
from batchyard.cli.settings import Settings
from batchyard.cli.views.nodes import LIST_COLUMNS
from batchyard.cli.views.report import report_document
from batchyard.cli.words import CHINESE, ENGLISH
from tests.unit.cli.messages import busy_report

ROWS = [
    {"id": "a", "wait_ms": 1500, "rate": 0.05, "models": ["m1", "m2"], "ok": True, "note": None},
    {"id": "[red]b", "wait_ms": None, "rate": None, "models": [], "ok": False, "note": "x\ty\n"},
]
COLUMNS = (
    Column("id", "ID"),
    duration("wait_ms", "WAIT"),
    share("rate", "RATE"),
    Column("models", "MODELS"),
    Column("ok", "OK"),
    Column("note", "NOTE", wide=True),
)


def emit(form: str | None) -> None:
    settings = Settings(output=form)
    output.emit_list(settings, "things", ROWS, COLUMNS, id_key="id", empty="nothing")


def drawn(screen: object, width: int) -> list[str]:
    """The lines of a screen on a terminal of that width."""
    target = io.StringIO()
    Console(file=target, width=width, force_terminal=True, no_color=True).print(screen)
    return [_without_style(line).rstrip() for line in target.getvalue().splitlines()]


def _without_style(line: str) -> str:
    from rich.text import Text

    return Text.from_ansi(line).plain


def test_a_narrow_table_leaves_out_its_last_columns_and_never_what_a_row_is_called() -> None:
    rows = [{**ROWS[0], "id": "node-1"}]
    assert drawn(Grid(rows, COLUMNS), 20) == ["ID      WAIT  RATE", "node-1  1.5s  5.0%"]
    assert drawn(Grid(rows, COLUMNS), 5)[0].startswith("ID")


def test_pipe_gets_tab_separated_values_with_the_json_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit(None)
    assert capsys.readouterr().out.splitlines() == [
        "id\twait_ms\trate\tmodels\tok\tnote",
        "a\t1500\t0.05\tm1,m2\ttrue\t",
        "[red]b\t\t\t\tfalse\tx\\ty\\n",
    ]


def test_json_and_yaml_are_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    emit("json")
    as_json = json.loads(capsys.readouterr().out)
    emit("yaml")
    assert as_json == yaml.safe_load(capsys.readouterr().out) == {"things": ROWS}


def test_names_are_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit("name")
    assert capsys.readouterr().out == "a\n[red]b\n"


def test_table_shows_names_as_they_are_and_wide_columns_only_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit("table")
    narrow = capsys.readouterr().out
    assert "[red]b" in narrow
    assert "1.5s" in narrow
    assert "NOTE" not in narrow
    emit("wide")
    wide = capsys.readouterr().out
    assert "NOTE" in wide
    assert "x\\ty\\n" in wide


def test_control_characters_never_reach_the_terminal() -> None:
    assert printable("a\x1b[2Jb\u2028c") == "a\\x1b[2Jb\\u2028c"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_status_fits_the_width_of_the_terminal(width: int) -> None:
    lines = drawn(status_screen(report_document(busy_report())), width)
    assert max(cell_len(line) for line in lines) <= width
    shown = "\n".join(lines)
    assert "p10: 2 (2.0s)" in shown
    assert "p1: 4 (200ms)" in shown
    assert "nodes 2/3" in shown
    assert "want 3 of 1..4" in shown
    assert "10 = most urgent" in shown


def test_status_of_80_columns_cuts_no_column_of_the_nodes_table() -> None:
    shown = "\n".join(drawn(status_screen(report_document(busy_report())), 80))
    for column in ("NODE", "STATE", "MODEL", "SLOTS IN USE", "AVG", "FAIL", "OK", "ACCEPTS"):
        assert column in shown
    assert "▇▇▁▁ 2/4" in shown
    assert "812ms" in shown


def test_long_names_give_way_before_states_and_figures() -> None:
    message = busy_report()
    message.nodes[0].node_id = "ip-10-11-12-13.eu-west-1.compute.internal-7621"
    message.nodes[0].models[0] = "llama-3.1-70b-instruct-fp8"
    shown = "\n".join(drawn(status_screen(report_document(message)), 80))
    assert "llama-3…" in shown
    assert "ip-10-…-7621" in shown
    assert "healthy" in shown
    assert "SLOTS IN USE" in shown
    assert shown.count("812ms") == 2


@pytest.mark.parametrize("screen", [status_screen, lambda d: report_screen(d, ENGLISH)])
def test_nodes_of_one_family_stay_apart_on_80_columns(screen: Callable[..., object]) -> None:
    message = busy_report()
    for number, node in enumerate(message.nodes):
        node.node_id = f"auto-12683-{number}"
        node.models[:] = ["smollm2-135m-instruct"]
    shown = "\n".join(drawn(screen(report_document(message)), 80))
    starts = {line.split()[0] for line in shown.splitlines() if line.startswith("auto")}
    assert len(starts) == len(message.nodes)


@pytest.mark.parametrize(
    ("text", "cells", "shown"),
    [
        ("auto-12683-1", 9, "auto…83-1"),
        ("n1", 9, "n1"),
        ("节点一二三", 7, "节…三"),
        ("ab", 1, "ab"),
    ],
)
def test_an_id_is_cut_in_its_middle(text: str, cells: int, shown: str) -> None:
    assert without_middle(text, cells) == shown


def test_queues_are_read_on_80_columns() -> None:
    from batchyard.cli.views.queues import LIST_COLUMNS as QUEUES

    rows = report_document(busy_report())["queues"]
    rows[0] |= {"arrivals_per_second": 10.568404, "departures_per_second": 0.069299}
    lines = drawn(output.table(rows, QUEUES), 80)
    assert max(cell_len(line) for line in lines) <= 80
    assert lines[0].split()[:3] == ["POOL", "MODEL", "PRIO"]
    assert "10.57   0.07" in lines[1]


def test_status_leaves_room_for_the_height_of_the_terminal() -> None:
    message = busy_report()
    for number in range(50):
        message.events.add(event="submit", event_id=str(number), message=f"r{number}")
    lines = drawn(status_screen(report_document(message), height=24), 80)
    assert len(lines) <= 24


@pytest.mark.parametrize("width", [80, 120])
def test_chinese_report_lines_up_by_cells_and_fits(width: int) -> None:
    message = busy_report()
    message.report_name = "批处理调度报告"
    message.nodes[0].node_id = "节点一"
    lines = drawn(report_screen(report_document(message), CHINESE), width)
    assert lines[0] == "批处理调度报告"
    assert max(cell_len(line) for line in lines) <= width
    header = next(line for line in lines if "延迟" in line)
    row = next(line for line in lines if "节点一" in line)
    # Right-aligned columns end at the same cell, however many characters precede them.
    assert cell_len(header[: header.index("延迟") + 2]) == cell_len(row[: row.index("812ms") + 5])


def test_report_has_every_total_and_the_diagnosis_with_its_figures() -> None:
    shown = "\n".join(drawn(report_screen(report_document(busy_report()), ENGLISH), 100))
    assert "The queue is long. (12 wait, the oldest for 3.2 s)" in shown
    assert "late results" in shown
    assert "r1 moves from n2 to n1" in shown


def test_report_is_drawn_without_nodes_and_events() -> None:
    from batchyard.v1 import report_pb2

    shown = "\n".join(drawn(report_screen(report_document(report_pb2.Report()), CHINESE), 80))
    assert "最紧急" in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0ms"), (0.44, "0.4ms"), (840, "840ms"), (999.7, "1.0s"), (1500, "1.5s"),
        (59_960, "1m00s"), (61_000, "1m01s"), (7_500_000, "2h05m"), (200_000_000, "2d07h"),
    ],
)  # fmt: skip
def test_durations_are_written_in_at_most_two_units(value: float | None, text: str) -> None:
    assert format_ms(value) == text


def test_bars_keep_small_values_visible() -> None:
    assert spark([0, 1, 50, 100]) == "·▁▅█"
    assert spark([0, 0]) == "··"
    assert gauge(1, 100) == "▇▁▁▁▁▁▁▁"
    assert gauge(4, 4) == "▇▇▇▇"
    assert gauge(0, 0) == "-"


def test_percentages_keep_a_digit_where_it_matters() -> None:
    assert [percent(value) for value in (None, 0.0, 0.012, 0.5, 1.0)] == [
        "-", "0.0%", "1.2%", "50%", "100%",
    ]  # fmt: skip


def test_every_list_column_has_a_key_of_the_document() -> None:
    from batchyard.cli.views.nodes import node_document
    from tests.unit.cli.messages import node

    document = node_document(node("n1"))
    assert [c.key for c in LIST_COLUMNS if c.key not in document] == []


def test_wide_is_never_cut_or_folded(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "x" * 300, "wait_ms": 1, "rate": 0, "models": ["m" * 100], "ok": True}]
    output.emit_list(Settings(output="wide"), "t", rows, COLUMNS, id_key="id", empty="")
    _, row = capsys.readouterr().out.splitlines()
    assert "x" * 300 in row
    assert "m" * 100 in row


def test_request_ids_are_whole_on_80_columns() -> None:
    from batchyard.cli.views import requests
    from batchyard.v1 import report_pb2, types_pb2

    summary = report_pb2.RequestSummary(
        request_id="0123456789abcdef" * 2,
        model="smollm2-135m-instruct",
        node_id="ip-10-11-12-13.internal-7621",
        state=report_pb2.REQUEST_STATE_FINISHED,
        finish_reason=types_pb2.FINISH_REASON_CANCELLED,
    )
    listed = output.table([requests.request_row(summary)], requests.LIST_COLUMNS)
    _, row = drawn(listed, 80)
    assert summary.request_id in row
    assert "cancelled" in row
