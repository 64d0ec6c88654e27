"""Each line of a log has an event, and each event is in the document."""

from __future__ import annotations

import re

from tests.tidy import log_events

PAGE = log_events.ROOT / "docs" / "logs.md"


def test_every_line_of_a_log_has_an_event() -> None:
    assert not log_events.without_event(), 'give it extra={"event": "a_stable_name"}'


def test_the_document_lists_exactly_the_events_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    assert listed == sorted(listed), "by name"
    assert set(listed) == log_events.events(), "docs/logs.md has a row for each"
