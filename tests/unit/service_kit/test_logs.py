"""The form of log lines, and their way out."""

from __future__ import annotations

import json
import logging

import pytest

from service_kit import logs


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("node_agent.x", logging.INFO, "f", 1, message, None, None)
    made.__dict__.update(fields)
    return made


def test_a_log_line_is_one_json_object_with_stable_fields() -> None:
    line = logs.LineFormatter(as_json=True).format(
        record("node drained", event="node_drained", node_id="n1", secret="prompt text")
    )
    fields = json.loads(line)
    assert fields["ts"].endswith("Z")
    assert (fields["level"], fields["logger"]) == ("info", "node_agent.x")
    assert (fields["msg"], fields["event"], fields["node_id"]) == (
        "node drained",
        "node_drained",
        "n1",
    )
    assert "secret" not in fields


def test_a_text_line_quotes_what_has_spaces_and_is_never_endless() -> None:
    line = logs.LineFormatter(as_json=False).format(record("x" * 5000, reason="a b"))
    assert line.endswith('reason="a b"')
    assert len(line) < 2200


def test_what_others_named_makes_no_line_of_its_own_and_moves_no_terminal() -> None:
    text = logs.LineFormatter(as_json=False)
    line = text.format(record("loads m\nby admin: \x1b[2J \x9b1A 模型", pool="m\n\x9b1A"))
    assert line.isprintable()
    assert "loads m\\nby admin: \\x1b[2J \\x9b1A 模型" in line


def test_a_line_of_a_library_has_an_event_too() -> None:
    theirs = logging.LogRecord("grpc._x", logging.WARNING, "f", 1, "oh", None, None)
    assert json.loads(logs.LineFormatter(as_json=True).format(theirs))["event"] == "library"
    assert "event" not in json.loads(logs.LineFormatter(as_json=True).format(record("x")))


def test_lines_are_written_by_a_thread_and_flushed_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    writer = logs.set_up(form="json", level="info")
    try:
        logging.getLogger("node_agent.y").info("hello %s", "there", extra={"event": "e"})
        logging.getLogger("scheduler_service.z").info("here")
        logging.getLogger("node_agent.y").debug("not this")
        logging.getLogger("someone.else").info("nor this")
    finally:
        writer.stop()
        root.handlers[:] = handlers
        root.setLevel(level)
        for name in logs.OURS:
            logging.getLogger(name).setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["msg"] for line in lines] == ["hello there", "here"]


def test_the_level_of_one_logger_leaves_the_others() -> None:
    logs.set_level("debug", "node_agent.rpc")
    try:
        assert logging.getLogger("node_agent.rpc.link").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("node_agent.core").isEnabledFor(logging.DEBUG)
    finally:
        logging.getLogger("node_agent.rpc").setLevel(logging.NOTSET)
