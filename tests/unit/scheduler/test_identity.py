"""The cluster id stays, the term grows, and one folder serves one scheduler."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from scheduler_service.identity import TERM_MAX, Identity, IdentityError, load_identity


def test_the_term_grows_at_each_start_and_the_cluster_id_stays(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "anew"
    first = load_identity(folder)
    first.close()
    second = load_identity(folder)
    second.close()
    assert (first.term, second.term) == (1, 2)
    assert first.cluster_id == second.cluster_id


def test_without_a_folder_each_start_is_a_new_cluster() -> None:
    first, second = load_identity(None), load_identity(None)
    assert first.term == second.term == 1
    assert first.cluster_id != second.cluster_id
    first.close()


def test_two_schedulers_cannot_share_a_folder(tmp_path: Path) -> None:
    holder = load_identity(tmp_path)
    with pytest.raises(IdentityError, match="another scheduler runs"):
        load_identity(tmp_path)
    holder.close()
    load_identity(tmp_path).close()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"cluster_id": "x", "term": 1}', json.dumps({"cluster_id": "0" * 32})]
)
def test_a_damaged_file_is_never_taken_for_a_new_cluster(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    with pytest.raises(IdentityError, match="is damaged"):
        load_identity(tmp_path)
    assert (tmp_path / "identity.json").read_text() == content


def test_the_last_term_is_not_passed(tmp_path: Path) -> None:
    document = {"cluster_id": "0" * 32, "term": TERM_MAX}
    (tmp_path / "identity.json").write_text(json.dumps(document))
    with pytest.raises(IdentityError, match="used up"):
        load_identity(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match="cannot be used"):
        load_identity(tmp_path / "file" / "below")


def test_the_key_of_cookies_stays_and_is_its_owners_alone(tmp_path: Path) -> None:
    first, second = _opened(tmp_path), _opened(tmp_path)
    assert len(first.cookie_key) == 32
    assert first.cookie_key == second.cookie_key
    assert stat.S_IMODE((tmp_path / "cookies.key").stat().st_mode) == 0o600
    assert repr(first.cookie_key) not in repr(first)
    assert not load_identity(None).cookie_key


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_key_that_others_can_read_or_that_is_damaged_is_replaced(
    tmp_path: Path, mode: int
) -> None:
    first = _opened(tmp_path)
    path = tmp_path / "cookies.key"
    if mode == 0o600:
        path.write_bytes(b"half")
    path.chmod(mode)
    second = _opened(tmp_path)
    assert len(second.cookie_key) == 32
    assert first.cookie_key != second.cookie_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _opened(folder: Path) -> Identity:
    found = load_identity(folder)
    found.close()
    return found
