"""Hosts and ports as one."""

from __future__ import annotations

import pytest

from scheduler_service.config import ListenSection
from service_kit.addresses import joined


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7"), ("[::1]", "[::1]:7"), ("box", "box:7")],
)
def test_an_address_in_brackets_is_the_same_without(host: str, address: str) -> None:
    assert joined(ListenSection(host=host).host, 7) == address
