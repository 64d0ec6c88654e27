"""An audit that did not happen never looks like one that found nothing."""

from __future__ import annotations

import pytest

from scripts import audit
from scripts.audit import NOT_CHECKED, NoAnswer, Verdict

CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found and could not be audited: c (1)"}


def test_each_package_is_clean_vulnerable_or_unknown() -> None:
    verdict = audit.judge({"dependencies": [CLEAN, BAD, UNKNOWN]})
    assert verdict == Verdict({"a 1"}, {"b 2": ["X-1: fixed in 3"]}, {"c"})
    with pytest.raises(NoAnswer, match="knows 2 of 3"):
        audit.complete(verdict, "x.lock")


def test_what_was_found_is_shown_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report(audit.judge({"dependencies": [CLEAN, BAD]})) == audit.FOUND
    assert "b 2: X-1: fixed in 3" in capsys.readouterr().out
    assert audit.report(audit.judge({"dependencies": [CLEAN]})) == 0


def test_a_database_that_cannot_be_asked_is_no_clean_bill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here pip-audit itself is absent, as unreachable as a database can be."""
    with pytest.raises(NoAnswer):
        audit.audit(audit.ROOT / "requirements.lock", "osv", "http://127.0.0.1:1/")
    assert audit.main(["--osv-url", "http://127.0.0.1:1/"]) == NOT_CHECKED
    assert "NOT CHECKED" in capsys.readouterr().err
