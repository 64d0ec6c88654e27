"""Loopback needs no flag; any other address needs TLS and authentication, or the word for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent import config_sources as agent_sources
from scheduler_service import config_sources
from scheduler_service.clock import Clock
from scheduler_service.security.guard import Guard, GuardError
from service_kit.loopback import dials_loopback, is_loopback

NO_HOME = {"HOME": "/nowhere"}


def problems(*flags: str) -> str:
    try:
        config_sources.load(None, environ=NO_HOME, flags=flags)
    except config_sources.ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    assert problems(f"listen.host={host}") == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "'::'", "gpu.example", "localhost.x"])
def test_another_address_is_refused_and_told_how_to_fix(host: str) -> None:
    assert not is_loopback(host.strip("'"))
    told = problems(f"listen.host={host}")
    for words in ("nothing would be encrypted", "batchyard certs init", "everybody could do",
                  "batchyard tokens create", "--insecure"):  # fmt: skip
        assert words in told
    assert problems(f"listen.host={host}", "listen.insecure=true") == ""
    safe = ("tls.certificate=c", "tls.key=k", "auth.file=g")
    assert problems(f"listen.host={host}", *safe) == ""
    assert "everybody" in problems(f"listen.host={host}", *safe[:2])


def test_half_a_tls_section_is_refused() -> None:
    assert "needs tls.key" in problems("tls.certificate=c")
    assert "needs tls.certificate" in problems("tls.key=k")
    assert "needs tls.authority" in problems(
        "tls.certificate=c", "tls.key=k", "tls.client_certificates=true"
    )


def test_a_shared_port_cannot_ask_only_agents_for_a_certificate() -> None:
    shared = ("listen.client_port=1", "listen.node_port=1", "listen.admin_port=1",
              "tls.certificate=c", "tls.key=k", "tls.authority=a")  # fmt: skip
    assert "one port asks all its callers" in problems(*shared)
    assert problems(*shared, "tls.client_certificates=true") == ""
    assert problems(*shared, "tls.agent_certificates=false") == ""


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [("key", b"x", "holds no unencrypted private key"), ("certificate", b"x", "no certificate")],
)
def test_unusable_files_stop_the_start(
    tmp_path: Path, file: str, content: bytes, words: str
) -> None:
    from datetime import UTC, datetime

    from scheduler_service.security.authority import Authority
    from service_kit.secret_files import write_secret

    now = datetime.now(UTC)
    certificate, key = Authority.create("x", now).issue("", ["localhost"], 1, now)
    found = {"certificate": certificate, "key": key, file: content}
    flags = []
    for name, text in found.items():
        write_secret(tmp_path / name, text)
        flags.append(f"tls.{name}={tmp_path / name}")
    config = config_sources.load(None, environ=NO_HOME, flags=flags).config
    with pytest.raises(GuardError, match=words):
        Guard(config, Clock())


def test_a_key_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    grants = tmp_path / "grants.json"
    grants.write_text('{"version": 1, "entries": []}')
    grants.chmod(0o640)
    config = config_sources.load(None, environ=NO_HOME, flags=[f"auth.file={grants}"]).config
    with pytest.raises(GuardError, match=f"chmod 600 {grants}"):
        Guard(config, Clock())


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("unix:/run/x", True),
     ("dns:///localhost:1", True), ("10.0.0.1:1", False), ("dns:///a.b:1", False)],
)  # fmt: skip
def test_agents_leave_this_machine_encrypted_or_not_at_all(address: str, loopback: bool) -> None:
    assert dials_loopback(address) is loopback
    flags = {"scheduler": {"address": address}, "engines": [{"kind": "simulated"}]}
    if loopback:
        agent_sources.load(path=None, environ=NO_HOME, flags=flags)
        return
    with pytest.raises(agent_sources.ConfigError, match="nothing would be encrypted"):
        agent_sources.load(path=None, environ=NO_HOME, flags=flags)
    for more in ({"insecure": True}, {"tls": {"enabled": True}}, {"tls": {"authority": "ca"}}):
        flags["scheduler"] = {"address": address, **more}
        agent_sources.load(path=None, environ=NO_HOME, flags=flags)
