"""What the doctor of the scheduler finds on this machine, and what it says to do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler_service import doctor
from scheduler_service.config import SchedulerConfig
from scheduler_service.identity import load_identity
from scheduler_service.jobs.sqlite import FILE, FOLDER
from service_kit import otlp_probe
from service_kit.doctor import Finding
from tests.integration.cluster import cluster, until
from tests.integration.otlp_receiver import receiver
from tests.ports import free_base


def told(findings: Iterator[Finding], about: str) -> Finding:
    (found,) = [each for each in findings if each.what.startswith(about)]
    return found


def config(**listen: Any) -> SchedulerConfig:
    base = free_base()
    names = ("http_port", "client_port", "node_port", "admin_port")
    ports = {name: base + n for n, name in enumerate(names)}
    return SchedulerConfig.model_validate({"listen": {**ports, **listen}})


@contextlib.contextmanager
def answering(code: int) -> Iterator[str]:
    """An HTTP server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_addresses_that_can_be_had_and_one_that_is_taken() -> None:
    chosen = config()
    with socket.create_server(("127.0.0.1", chosen.listen.node_port)):
        found = [*doctor.listen_findings(chosen, running=False)]
        assert [f.sound for f in found] == [True, False, True, True]
        assert "set listen.node_port" in found[1].remedy
        running = [*doctor.listen_findings(chosen, running=True)]
        assert all(f.sound for f in running)


def test_an_address_of_another_machine_cannot_be_had() -> None:
    found = [*doctor.listen_findings(config(host="192.0.2.1"), running=False)]
    assert not any(f.sound for f in found)
    assert "address of this machine" in found[0].remedy


def test_a_store_is_judged_by_what_is_in_it(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    assert told(doctor.store_findings(fresh), f"state_dir: {fresh} will be made").sound
    file = tmp_path / "file"
    file.touch()
    assert not told(doctor.store_findings(file), "state_dir").sound
    held = load_identity(tmp_path)
    assert told(doctor.store_findings(tmp_path), f"state_dir: {tmp_path} is held").sound is None
    held.close()
    assert "written through in" in told(doctor.store_findings(tmp_path), "state_dir").what
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).write_bytes(b"no database at all, but long enough to be one" * 9)
    broken = told(doctor.store_findings(tmp_path), "jobs")
    assert broken.sound is False
    assert "restore" in broken.remedy


def test_a_store_of_jobs_with_another_form_is_found(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / FOLDER / FILE)) as connection:
        connection.execute("CREATE TABLE something (else_ TEXT)")
        connection.commit()
    assert told(doctor.store_findings(tmp_path), "jobs").sound is False


def test_without_an_endpoint_traces_are_off_and_that_is_no_fault() -> None:
    assert otlp_probe.probe({}).sound is None
    assert otlp_probe.probe({"OTEL_TRACES_EXPORTER": "console"}).sound is None


async def test_a_collector_is_asked_as_the_exporter_asks_it() -> None:
    async with receiver() as seen:
        found = await asyncio.to_thread(
            otlp_probe.probe, {"OTEL_EXPORTER_OTLP_ENDPOINT": seen.endpoint}
        )
    assert found.sound, found
    assert not seen.spans


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(401, "OTEL_EXPORTER_OTLP_HEADERS"), (404, "base"), (415, "PROTOCOL"), (503, "log")],
)
def test_what_a_collector_answers_says_what_to_do(code: int, remedy: str) -> None:
    with answering(code) as endpoint:
        secret = endpoint.replace("://", "://user:secret@")
        found = otlp_probe.probe({"OTEL_EXPORTER_OTLP_ENDPOINT": secret})
    assert found.sound is False
    assert str(code) in found.what
    assert remedy in found.remedy
    assert "secret" not in str(found)


async def test_a_port_for_the_other_protocol_is_told_apart_from_one_that_is_away() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    http = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    found = await asyncio.to_thread(otlp_probe.probe, http)
    assert found.sound is False
    assert "4318" in found.remedy
    over_grpc = {**http, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    found = await asyncio.to_thread(otlp_probe.probe, over_grpc)
    assert "UNIMPLEMENTED" in found.what  # a gRPC server, and no collector
    await server.stop(0)
    found = await asyncio.to_thread(otlp_probe.probe, http)
    assert "start the collector" in found.remedy


@pytest.mark.slow
async def test_beside_a_running_scheduler_its_losses_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_base()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }  # fmt: skip
    async with cluster(env=away) as running:
        await running.agent("n0")
        ports = {
            f"{name}_port": int(running.addresses[name].rpartition(":")[2])
            for name in ("client", "node", "admin", "http")
        }
        chosen = SchedulerConfig.model_validate({"listen": ports})

        async def told_losses() -> bool:
            await running.client.generate("hi", model="m")
            code = await asyncio.to_thread(doctor.examine, chosen, {})
            said.append(capsys.readouterr().out)
            return code == 1 and "spans lost" in said[-1]

        said: list[str] = []
        await until(told_losses)
        assert "see whether the collector can be reached" in said[-1]
        assert said[-1].count("is in use, as it should be") == 4
