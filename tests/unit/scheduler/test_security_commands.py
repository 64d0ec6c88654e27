"""`batchyard tokens` and `batchyard certs`, on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_service.security import grants
from scheduler_service.security.__main__ import main
from scheduler_service.security.local_user import local_user
from service_kit.certificates import CertificateError, CertificateFiles
from service_kit.secret_files import SecretFileError, read_token, write_secret


def run(path: Path, *words: str) -> int:
    return main(["tokens", *words, "--file", str(path / "grants.json")])


def test_a_token_is_shown_once_and_only_its_hash_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "create", "team", "--tenant", "a", "--max-priority", "7") == 0
    token = capsys.readouterr().out.strip()
    assert grants.id_of(token)
    stored = (tmp_path / "grants.json").read_text()
    assert token not in stored
    assert token.rpartition("_")[2] not in stored
    assert run(tmp_path, "list") == 0
    assert run(tmp_path, "list", "-o", "json") == 0
    listed = capsys.readouterr().out
    assert token.rpartition("_")[2] not in listed
    assert "digest" not in listed
    [grant] = grants.read(tmp_path / "grants.json").entries.values()
    assert (grant.tenants, grant.max_priority, grant.rights) == (["a"], 7, ["use"])
    assert (tmp_path / "grants.json").stat().st_mode & 0o777 == 0o600


def test_a_token_can_go_into_a_private_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "join.token"
    assert run(tmp_path, "join", "--uses", "3", "--expires-in", "5m", "--out", str(out)) == 0
    assert capsys.readouterr().out == ""
    assert grants.id_of(read_token(out))
    out.chmod(0o644)
    with pytest.raises(SecretFileError, match="chmod 600"):
        read_token(out)


def test_revoking_takes_a_part_of_the_id_and_refuses_a_vague_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "create", "team")
    [grant] = grants.read(tmp_path / "grants.json").entries.values()
    assert run(tmp_path, "revoke", grant.id[:5]) == 0
    assert run(tmp_path, "revoke", "") == 1
    assert "see the list" in capsys.readouterr().err
    [grant] = grants.read(tmp_path / "grants.json").entries.values()
    assert grant.state(0.0) == "revoked"


def test_who_and_why_is_kept_of_a_grant_and_of_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = local_user({})
    run(tmp_path, "create", "team", "--reason", "their pilot")
    [grant] = grants.read(tmp_path / "grants.json").entries.values()
    for reason in ("it is over", "too late: who did it first did it"):
        assert run(tmp_path, "revoke", grant.id, "--reason", reason) == 0
    [grant] = grants.read(tmp_path / "grants.json").entries.values()
    assert (grant.created_by, grant.created_reason) == (user, "their pilot")
    assert (grant.revoked_by, grant.revoked_reason) == (user, "it is over")
    assert grant.created <= grant.revoked
    run(tmp_path, "list")
    assert capsys.readouterr().out.rstrip().endswith(f"{user}  it is over")


def test_the_account_is_named_and_who_became_it() -> None:
    assert local_user({}).startswith("local/")
    assert local_user({"SUDO_USER": "eve\n"}) == f"local/eve_ as {local_user({})[6:]}"


def test_a_reason_that_would_show_a_token_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, _ = grants.new_token(grants.new_id())
    assert run(tmp_path, "create", "team", "--reason", f"instead of {token}") == 1
    assert run(tmp_path, "create", "team", "--reason", "two\nlines") == 1
    assert run(tmp_path, "create", "team", "--reason", "x" * 257) == 1
    assert token not in capsys.readouterr().err
    assert not (tmp_path / "grants.json").exists()


@pytest.mark.parametrize(
    "words", [("create", "a b"), ("create", "x", "--max-priority", "11"), ("join", "--uses", "0")]
)
def test_nonsense_is_refused_and_nothing_written(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *words) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "grants.json").exists()


def test_the_file_can_come_from_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(f"auth: {{file: {tmp_path}/grants.json}}\n")
    assert main(["tokens", "create", "team", "-c", str(config)]) == 0
    config.write_text("version: 1\n")
    assert main(["tokens", "list", "-c", str(config)]) == 1
    assert "auth.file" in capsys.readouterr().err


def test_certificates_of_a_first_installation_hold_together(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    words = ["--dir", str(folder)]
    assert main(["certs", "init", *words, "--host", "h.example", "--node", "gpu-1"]) == 0
    assert main(["certs", "client", *words, "alice"]) == 0
    assert main(["certs", "init", *words]) == 1  # never over an authority that is there
    assert main(["certs", "node", *words, "a b"]) == 1
    assert folder.stat().st_mode & 0o077 == 0
    for key in folder.glob("*.key"):
        assert key.stat().st_mode & 0o077 == 0, key
    files = CertificateFiles(
        certificate=folder / "node-gpu-1.pem",
        key=folder / "node-gpu-1.key",
        authority=folder / "ca.pem",
    )
    assert files.identity.node_id == "gpu-1"
    with pytest.raises(CertificateError, match="is not the key"):
        CertificateFiles(
            certificate=folder / "scheduler.pem", key=folder / "node-gpu-1.key", authority=None
        )


def test_a_lost_certificate_is_revoked_by_its_fingerprint(tmp_path: Path) -> None:
    main(["certs", "init", "--dir", str(tmp_path / "certs"), "--node", "n1"])
    path = tmp_path / "grants.json"
    words = [str(tmp_path / "certs" / "node-n1.pem"), "--file", str(path)]
    assert main(["certs", "revoke", *words, "--reason", "stolen"]) == 0
    [kept] = grants.read(path).revoked_certificates.values()
    assert (kept.revoked_by, kept.revoked_reason) == (local_user(), "stolen")
    assert kept.revoked > 0


def test_a_file_from_before_reasons_were_kept_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    write_secret(path, b'{"version": 1, "entries": [], "revoked_certificates": {"ab": 7}}')
    assert grants.read(path).revoked_certificates["ab"].revoked == 7
