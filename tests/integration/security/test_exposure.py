"""Nothing listens beyond this machine without TLS and authentication, or `--insecure`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.cluster import PORTS, Process
from tests.integration.security.secured import Files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
FREE = [f"--{kind}-port=0" for kind in PORTS]


def refused(module: str, *words: str) -> str:
    """What a service says that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


async def listening(*words: str) -> set[str]:
    """The addresses on which a scheduler listens, over all its ports."""
    process = await Process.start("scheduler", "scheduler_service", *FREE, *words)
    try:
        stated = await process.until_ready()
        found = [
            each.laddr
            for each in psutil.Process(process.pid).net_connections("tcp")
            if each.status == psutil.CONN_LISTEN
        ]
    finally:
        await process.end()
    told = {int(str(stated[kind]).rpartition(":")[2]) for kind in PORTS}
    assert len(told) == 4
    assert {address.port for address in found} == told
    return {address.ip.removeprefix("::ffff:") for address in found}


async def test_by_default_every_port_is_on_loopback() -> None:
    assert await listening() == {"127.0.0.1"}


async def test_other_addresses_need_encryption_and_authentication(tmp_path: Path) -> None:
    files = Files(tmp_path)
    tls = ["--set", f"tls.certificate={tmp_path}/scheduler.pem",
           "--set", f"tls.key={tmp_path}/scheduler.key"]  # fmt: skip
    auth = ["--set", f"auth.file={files.grants}"]
    for host in ("::", "127.0.0.1.example"):  # all kinds: tests/unit/scheduler/test_exposure.py
        text = refused("scheduler_service", *FREE, "--listen-host", host)
        assert "tls.certificate" in text
        assert "auth.file" in text
        assert "batchyard certs init" in text
        assert "batchyard tokens create" in text
        assert "--insecure" in text
    host = ["--listen-host", "0.0.0.0"]
    assert "tls.certificate" not in refused("scheduler_service", *FREE, *host, *tls)
    assert "auth.file" not in refused("scheduler_service", *FREE, *host, *auth)
    both, said = await asyncio.gather(listening(*host, *tls, *auth), listening(*host, "--insecure"))
    assert both == said
    assert both <= {"0.0.0.0", "::"}  # to gRPC the one is both


def test_an_agent_dials_other_machines_encrypted_or_not_at_all() -> None:
    engine = ["--engine", "simulated"]
    for address in ("192.0.2.7:7612", "127.0.0.1.example:7612"):
        text = refused("node_agent", "--scheduler", address, *engine)
        assert "scheduler.tls.authority" in text
        assert "--insecure" in text
