"""A token goes to the scheduler that it is for, encrypted, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard.cli import credentials
from batchyard.cli.contexts import load
from batchyard.cli.failures import CliError
from batchyard.cli.settings import Settings, contexts_path
from tests.unit.cli.conftest import Cli

SECRET = "batchyard_0_secret"


@pytest.fixture
def prod(cli: Cli, tmp_path: Path) -> Cli:
    """A context with a token and an authority, and it is current."""
    token = tmp_path / "ops.token"
    token.write_text(SECRET)
    token.chmod(0o600)
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    words = ("--address", "prod:7611", "--token-file", str(token), "--tls-ca")
    assert cli("context", "save", "prod", *words, str(tmp_path / "ca.pem")).exit_code == 0
    return cli


def test_the_current_context_brings_its_token_and_tls(prod: Cli) -> None:
    settings = Settings()
    assert settings.client_address() == "prod:7611"
    assert settings.admin_client_address() == "prod:7613"
    for admin in (False, True):
        assert credentials.api_key(settings, admin=admin) == SECRET
        assert credentials.tls(settings, admin=admin) is not None


def test_a_told_address_gets_nothing_from_the_current_context(
    prod: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in (Settings(address="other:7611"), Settings(address="prod:7611")):
        assert credentials.api_key(settings) is None
        assert credentials.tls(settings) is None
    assert credentials.api_key(Settings(admin_address="other:7613"), admin=True) is None
    monkeypatch.setenv("BATCHYARD_ADDRESS", "other:7611")
    assert credentials.api_key(Settings()) is None
    assert Settings().client_address() == "other:7611"


def test_a_named_context_comes_before_the_environment(
    prod: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHYARD_API_KEY", "another")
    monkeypatch.setenv("BATCHYARD_ADDRESS", "other:7611")
    monkeypatch.setenv("BATCHYARD_ADMIN_ADDRESS", "other:7613")
    named = Settings(context="prod")
    assert named.client_address() == "prod:7611"
    assert named.admin_client_address() == "prod:7613"
    assert credentials.api_key(named) == SECRET
    assert credentials.api_key(Settings()) == "another"
    with pytest.raises(CliError, match="no context 'x'"):
        Settings(context="x").client_address()


def test_contexts_hold_names_of_files_and_no_secret(prod: Cli, tmp_path: Path) -> None:
    assert SECRET not in contexts_path().read_text()
    assert load(contexts_path()).contexts["prod"].token_file == str(tmp_path / "ops.token")
    (tmp_path / "ops.token").chmod(0o644)
    with pytest.raises(CliError, match="others can use it"):
        credentials.api_key(Settings())


@pytest.mark.parametrize("address", ["10.1.2.3:7611", "127.evil.example:7611", "dns:///a:7611"])
def test_a_token_is_not_sent_in_plain_text_to_another_machine(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("BATCHYARD_API_KEY", SECRET)
    done = cli("models", "list", "--address", address)
    assert done.exit_code == 2
    assert "plain text" in done.err
    assert "BATCHYARD_TLS_CA" in done.err
    assert SECRET not in done.err


def test_off_says_that_the_network_encrypts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHYARD_TLS_CA", "off")
    assert credentials.tls(Settings(address="10.1.2.3:7611")) is False
