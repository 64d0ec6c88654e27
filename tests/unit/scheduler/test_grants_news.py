"""Each change of the grants' file is told once, over restarts, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler_service.security.grants import Grant, Grants, Revocation
from scheduler_service.security.news import FILE, UNKNOWN, Change, GrantsNews

FINGERPRINT = "ab" * 32


class Told:
    """A scheduler after the other, with one state folder."""

    def __init__(self, state_dir: Path | None) -> None:
        self.state_dir = state_dir
        self.changes: list[Change] = []
        self.restart()

    def restart(self) -> None:
        self.news = GrantsNews(self.state_dir, self.changes.append)

    def of(self, *grants: Grant, **certificates: Revocation) -> list[tuple[str, str, str, str]]:
        """What is told of such a file."""
        self.news.look(Grants({g.id: g for g in grants}, dict(certificates)))
        told = [(c.kind, c.credential, c.by, c.reason) for c in self.changes]
        self.changes.clear()
        return told


def grant(**fields: Any) -> Grant:
    given = {"id": "a1", "kind": "client", "principal": "team", "rights": ["use"], "digest": "d"}
    made = {"created": 5, "created_by": "local/ann", "created_reason": "pilot"}
    return Grant(**{**given, **made, **fields})


def revoked(**fields: Any) -> Grant:
    return grant(revoked=9, revoked_by="local/bob", revoked_reason="over", **fields)


GRANTED = ("access_granted", "a1", "local/ann", "pilot")
REVOKED = ("access_revoked", "a1", "local/bob", "over")


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_grant_and_its_end_are_told_once_each(told: Told) -> None:
    assert told.of() == []
    assert told.of(grant()) == [GRANTED]
    assert told.of(grant()) == []
    assert told.of(revoked()) == [REVOKED]
    told.restart()
    assert told.of(revoked()) == []


def test_what_was_changed_while_no_scheduler_ran_is_told_at_the_next_start(told: Told) -> None:
    assert told.of(grant()) == [GRANTED]
    told.restart()
    lost = Revocation(revoked=8, revoked_by="local/bob", revoked_reason="stolen")
    news = told.of(revoked(), grant(id="b2"), **{FINGERPRINT: lost})
    assert news == [
        REVOKED,
        ("access_granted", "b2", "local/ann", "pilot"),
        ("access_revoked", FINGERPRINT, "local/bob", "stolen"),
    ]
    told.restart()
    assert told.of(revoked(), grant(id="b2"), **{FINGERPRINT: lost}) == []


def test_a_grant_that_came_and_went_unseen_is_told_in_that_order(told: Told) -> None:
    assert told.of(revoked()) == [GRANTED, REVOKED]


def test_what_was_changed_by_hand_is_told_of_somebody_unknown(told: Told) -> None:
    told.of(grant(), **{FINGERPRINT: Revocation(revoked=8)})
    assert told.of(grant(rights=["admin"])) == [
        ("access_changed", "a1", UNKNOWN, ""),
        ("access_granted", FINGERPRINT, UNKNOWN, ""),
    ]
    assert told.of() == [("access_revoked", "a1", UNKNOWN, "")]
    assert told.of(revoked(), grant(id="b2", created_by="")) == [
        GRANTED,
        REVOKED,
        ("access_granted", "b2", UNKNOWN, "pilot"),
    ]
    assert told.of(grant()) == [
        ("access_granted", "a1", UNKNOWN, ""),
        ("access_revoked", "b2", UNKNOWN, ""),
    ]


def test_nodes_that_a_join_token_admits_are_no_change_of_it(told: Told) -> None:
    join = {"kind": "join", "rights": [], "uses": 2}
    told.of(grant(**join))
    assert told.of(grant(**join, nodes=["n1"])) == []
    assert told.of(grant(**{**join, "uses": 3})) == [("access_changed", "a1", UNKNOWN, "")]


def test_without_a_state_folder_what_is_there_at_the_start_is_no_news() -> None:
    told = Told(None)
    assert told.of(grant()) == []
    assert told.of(revoked()) == [REVOKED]


def test_an_event_has_the_time_of_the_change_and_no_secret(told: Told) -> None:
    told.news.look(Grants({"a1": grant(digest="hash-of-it")}))
    [change] = told.changes
    assert change.data()["change_time"] == "1970-01-01T00:00:05+00:00"
    assert change.data()["what"] == "client team; may use"
    assert "hash-of-it" not in str(change)


def test_a_damaged_memory_warns_and_tells_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text("[]")
    assert Told(tmp_path).of(grant()) == [GRANTED]
    assert "is damaged" in caplog.text


def test_a_disk_that_takes_nothing_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(tmp_path / "missing")
    assert told.of(grant()) == [GRANTED]
    assert told.of(grant()) == []
    assert "cannot be written" in caplog.text
