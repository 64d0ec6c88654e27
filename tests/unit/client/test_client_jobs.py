"""What of a job's input is seen to be wrong before it is sent."""

from __future__ import annotations

import pytest

from batchyard import async_jobs
from batchyard.async_jobs import _line_parts
from batchyard.errors import InvalidRequest


def test_line_that_no_message_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would say no more than that some message is too large."""
    monkeypatch.setattr(async_jobs, "_ITEM_BYTES_MAX", 9)
    with pytest.raises(InvalidRequest) as refused:
        list(_line_parts([b"{}\n", b"\n", b'{"a": 123}\n']))
    assert refused.value.field == "input.json_lines[2]"
