"""For which nodes does the next scheduler wait?"""

from __future__ import annotations

from pathlib import Path

from scheduler_service.core import records
from scheduler_service.core.records import Record
from scheduler_service.known_nodes import AGAIN, FILE, KnownNodes


def test_next_scheduler_waits_only_for_nodes_that_may_bring_something_back(tmp_path: Path) -> None:
    """A node that was retired would hold up all dispatch of the next one for the whole window."""
    known = KnownNodes(tmp_path)
    assert known.before == frozenset()
    for kind, node_id, left in (
        (records.NODE_JOINED, "a", "a"),
        (records.NODE_JOINED, "b", "ab"),
        (records.NODE_JOINED, "c", "abc"),
        (records.NODE_LOST, "a", "bc"),
        (records.NODE_DRAINED, "b", "c"),
        (records.NODE_DRAINED, "c", ""),
        (records.NODE_UNCORDONED, "c", "c"),
        (records.SUBMIT, "", "c"),
    ):
        known([Record(kind, 1, node_id=node_id)])
        assert KnownNodes(tmp_path).before == frozenset(left)


def test_file_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    """A disk that was full for a moment must not cost the running work at the next restart."""
    known = KnownNodes(tmp_path)
    (tmp_path / FILE).mkdir()
    known([Record(records.NODE_JOINED, 1, node_id="a")])
    (tmp_path / FILE).rmdir()
    known([Record(records.SUBMIT, AGAIN)])
    assert KnownNodes(tmp_path).before == frozenset()
    known([Record(records.SUBMIT, 1 + AGAIN)])
    assert KnownNodes(tmp_path).before == {"a"}
