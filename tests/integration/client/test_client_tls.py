"""TLS with roots of one's own, given as bytes, as a path or as credentials."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient, errors
from batchyard.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from tests.integration.client.scripted_scheduler import ScriptedScheduler

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the keys")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Key and self-signed certificate of localhost."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


@pytest.mark.parametrize("form", ["path", "text", "bytes", "credentials"])
async def test_own_roots_are_trusted(pair: tuple[Path, Path], form: str) -> None:
    key, certificate = pair
    forms: dict[str, Any] = {
        "path": certificate,
        "text": str(certificate),
        "bytes": certificate.read_bytes(),
        "credentials": grpc.ssl_channel_credentials(certificate.read_bytes()),
    }
    server = grpc.aio.server()
    scheduler = ScriptedScheduler()
    add_SchedulerServiceServicer_to_server(scheduler, server)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    port = server.add_secure_port("localhost:0", credentials)
    await server.start()
    try:
        async with AsyncClient(f"localhost:{port}", tls=forms[form], api_key="k") as client:
            assert (await client.generate("p")).text == "p"
        async with AsyncClient(f"localhost:{port}", tls=True, retries=0) as stranger:
            with pytest.raises(errors.Unavailable):
                await stranger.generate("p")
    finally:
        await server.stop(None)
    assert scheduler.metadata[0]["authorization"] == "Bearer k"


async def test_other_forms_are_refused() -> None:
    async with AsyncClient("127.0.0.1:1", tls=5) as client:  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidRequest) as caught:
            await client.generate("p")
    assert caught.value.field == "tls"
