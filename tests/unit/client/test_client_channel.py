"""Where the scheduler is, and what goes with each RPC."""

from __future__ import annotations

import pytest

from batchyard import AsyncClient
from batchyard.channel import (
    address_of,
    admin_address_of,
    check_token_stays_secret,
    metadata_of,
)
from batchyard.errors import InvalidRequest


def test_argument_then_environment_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHYARD_ADDRESS", raising=False)
    monkeypatch.delenv("BATCHYARD_ADMIN_ADDRESS", raising=False)
    assert (address_of(None), admin_address_of(None)) == ("127.0.0.1:7611", "127.0.0.1:7613")
    monkeypatch.setenv("BATCHYARD_ADDRESS", "env:1")
    monkeypatch.setenv("BATCHYARD_ADMIN_ADDRESS", "env:2")
    assert (address_of(None), admin_address_of(None)) == ("env:1", "env:2")
    assert (address_of("arg:3"), admin_address_of("arg:4")) == ("arg:3", "arg:4")


@pytest.mark.parametrize(
    ("client", "admin"),
    [
        ("far:9001", "far:9003"),
        ("[::1]:5", "[::1]:7"),
        ("unix:/run/b.sock", "127.0.0.1:7613"),
        ("far:65535", "127.0.0.1:7613"),
    ],
)
def test_operators_are_asked_beside_the_client_port_unless_told(
    client: str, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scheduler, not whichever has the default port on this machine."""
    monkeypatch.delenv("BATCHYARD_ADMIN_ADDRESS", raising=False)
    assert admin_address_of(None, client) == admin
    assert AsyncClient(client)._admin_address == admin


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("host", "host:7611"),
        ("[::1]", "[::1]:7611"),
        ("[::1]:5", "[::1]:5"),
        ("::1", "[::1]:7611"),
        ("host:65535", "host:65535"),
        ("ipv4:127.0.0.1:5", "ipv4:127.0.0.1:5"),
        ("dns:///a:1", "dns:///a:1"),
        ("unix:/run/b.sock", "unix:/run/b.sock"),
        ("unix:///run/b.sock", "unix:///run/b.sock"),
        ("unix-abstract:b", "unix-abstract:b"),
        ("xds:///b", "xds:///b"),
        ("a_b.c:5", "a_b.c:5"),
        ("fe80::1%eth0", "[fe80::1%eth0]:7611"),
    ],
)
def test_a_bare_host_gets_the_port(given: str, used: str) -> None:
    assert address_of(given) == used


@pytest.mark.parametrize(
    "given",
    [
        "http://host:1",
        "a b:1",
        " ",
        "host:65536",
        "host:0",
        "host:-1",
        "host:",
        ":1",
        "host:x",
        "::1]:5",
    ],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    """gRPC would dial another port than the one that is meant."""
    with pytest.raises(InvalidRequest) as caught:
        address_of(given)
    assert caught.value.field == "address"


def test_api_key_is_a_bearer_token() -> None:
    assert metadata_of(None) == ()
    assert metadata_of("k") == (("authorization", "Bearer k"),)
    with pytest.raises(InvalidRequest):
        metadata_of("line\nbreak")


@pytest.mark.parametrize("address", ["unix:/b", "unix-abstract:b", "[::1]:5", "ipv4:127.0.0.1:5"])
def test_token_may_be_sent_in_plain_text_on_this_machine_alone(address: str) -> None:
    check_token_stays_secret(address, "k", None)
    with pytest.raises(InvalidRequest, match="plain text"):
        check_token_stays_secret("127.example:5", "k", None)
