"""Strings that no one may show are sent through real processes, and looked for in all they show.

Prompts, answers, tokens, keys and headers: in logs at their most talkative, spans, metrics of the
scheduler and the agent, events, reports, dumps, explanations, errors, recordings, state files and
the arguments of processes.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import psutil
import pytest

from batchyard import AsyncClient, errors
from batchyard.v1 import GenerateRequest, InferenceRequest, SchedulerServiceStub, TextInput
from scheduler_service.security.local_user import local_user
from service_kit.secret_files import write_secret
from tests.integration.cluster import PORTS, Process, until
from tests.integration.otlp_receiver import Receiver, receiver
from tests.integration.security.secured import MODEL, Files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PROMPT = "canary-of-a-prompt-3f1c"
SYSTEM = "canary-of-a-system-message-77aa"
HEADER = "canary-of-a-header-51d0"
OPERATOR = {"rights": ["admin"]}


class Installation:
    """A scheduler and an agent as processes, behind TLS and tokens, tracing everything."""

    def __init__(self, files: Files, collector: Receiver) -> None:
        self.files = files
        self.collector = collector
        self.user, self.boss = files.token("team", tenants=["a"]), files.token("boss", **OPERATOR)
        self.join = files.token(kind="join")
        self.forged = files.token()[:-6] + "WRONG1"
        write_secret(files.folder / "join.token", self.join.encode())
        self.scheduler: Process
        self.agent: Process
        self.addresses: dict[str, str] = {}

    async def start(self) -> None:
        folder = self.files.folder
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{self.collector.endpoint}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        settings = {
            "tls.certificate": folder / "scheduler.pem",
            "tls.key": folder / "scheduler.key",
            "tls.authority": folder / "ca.pem",
            "tls.agent_certificates": "false",
            "auth.file": self.files.grants,
            "state_dir": folder / "state",
            "recording.file": folder / "recording",
            "log.level": "trace",
        }
        words = [w for k, v in settings.items() for w in ("--set", f"{k}={v}")]
        ports = [f"--{kind}-port=0" for kind in PORTS]
        self.scheduler = await Process.start(
            "scheduler", "scheduler_service", *ports, *words, env=env
        )
        self.addresses = await self.scheduler.until_ready()
        self.agent = await Process.start(
            "agent", "node_agent", "--scheduler", self.addresses["node"], "--node-id", "n1",
            "--set", f"scheduler.tls.authority={folder}/ca.pem",
            "--set", f"scheduler.token_file={folder}/join.token", "--set", "log.level=trace",
            "--set", "log.format=text", "--set", "metrics.listen=127.0.0.1:0",
            "--engine", "simulated", "--engine-option", f"models=[{MODEL}]", env=env,
        )  # fmt: skip
        await self.agent.until_ready()

    def client(self, token: str) -> AsyncClient:
        return AsyncClient(
            self.addresses["client"], admin_address=self.addresses["admin"], api_key=token,
            tls=self.files.ca, retries=0,
        )  # fmt: skip

    async def tokens(self, *words: str) -> str:
        """Run `batchyard tokens` as an operator would; its standard output."""
        command = (sys.executable, "-m", "scheduler_service.security", "tokens", *words)
        process = await asyncio.create_subprocess_exec(
            *command, "--file", self.files.grants, stdout=PIPE, stderr=PIPE
        )
        said, complaints = await process.communicate()
        assert process.returncode == 0, complaints
        return said.decode().strip()

    async def end(self) -> None:
        await self.agent.end()
        await self.scheduler.end()


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with receiver() as collector:
        made = Installation(Files(tmp_path), collector)
        await made.start()
        yield made
        await made.end()


async def http_pages(made: Installation, request_id: str) -> list[str]:
    context = ssl.create_default_context(cadata=made.files.ca.decode())
    headers = {"Authorization": f"Bearer {made.boss}", "X-Note": HEADER}
    pages = []
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in ("/metrics", "/api/report", f"/api/explain/{request_id}"):
            url = f"https://{made.addresses['http']}{path}"
            async with session.get(url, ssl=context) as answer:
                assert answer.status == 200, path
                pages.append(await answer.text())
        (line,) = [line for line in made.agent.lines if "metrics_served" in line]
        address = line.rpartition("address=")[2]
        async with session.get(f"http://{address}/metrics") as answer:
            pages.append(await answer.text())
            assert "batchyard_attempts_total" in pages[-1]
    return pages


async def commands(made: Installation) -> list[str]:
    """What an operator's command line writes."""
    folder, found = made.files.folder, []
    (folder / "public.pem").write_bytes(made.files.ca)
    write_secret(folder / "boss.token", made.boss.encode())
    env = {
        **os.environ,
        "BATCHYARD_ADMIN_ADDRESS": made.addresses["admin"],
        "BATCHYARD_TOKEN_FILE": str(folder / "boss.token"),
        "BATCHYARD_TLS_CA": str(folder / "public.pem"),
    }
    for words in (("debug", "dump", str(folder / "dump.json")), ("report", "-o", "html")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "batchyard.cli", *words, env=env, stdout=PIPE, stderr=PIPE
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        found += [out.decode(), err.decode()]
    found.append((folder / "dump.json").read_text())
    assert len(found[-1]) > 1000
    return found


async def send_header(made: Installation) -> None:
    """A call with a header that is nobody's business."""
    credentials = grpc.ssl_channel_credentials(made.files.ca)
    metadata = (("authorization", f"Bearer {made.user}"), ("x-note", HEADER))
    async with grpc.aio.secure_channel(made.addresses["client"], credentials) as channel:
        stub: Any = SchedulerServiceStub(channel)
        request = InferenceRequest(model=MODEL, text=TextInput(prompt="hi [[tokens=2]]"))
        await stub.Generate(GenerateRequest(request=request), metadata=metadata)


async def given_and_taken(made: Installation, boss: AsyncClient) -> str:
    """A token that an operator makes and revokes; the events name them."""
    token = await made.tokens("create", "late", "--reason", "for the fair")
    await made.tokens("revoke", token.split("_")[1], "--reason", "the fair is over")

    async def told() -> bool:
        kinds = ["access_granted", "access_revoked"]
        newest = [event async for event in boss.admin.events(events=kinds)][:2]
        return [(event.principal, event.reason) for event in newest] == [
            (local_user(), "the fair is over"),
            (local_user(), "for the fair"),
        ]

    await until(told)
    return token


async def test_no_secret_and_no_content_is_ever_shown(installation: Installation) -> None:
    made, shown = installation, []
    answers: list[str] = []
    async with made.client(made.user) as user, made.client(made.forged) as wrong:
        request_id = ""

        async def served() -> bool:
            return bool([each async for each in user.list_models()])

        await until(served)
        first = await user.generate(f"{PROMPT} [[tokens=40]]", model=MODEL)
        request_id = first.request_id
        answers.append(first.text)
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        stream = user.stream(messages=chat, model=MODEL)
        answers.append("".join([delta.text async for delta in stream]))
        for sender, prompt, options in (
            (user, f"{PROMPT} [[fail=3]]", {"max_attempts": 1}),
            (user, PROMPT, {"tenant": "other"}),
            (user, PROMPT, {"n": 999}),
            (user, PROMPT, {"json_schema": f"{{{PROMPT}"}),
            (wrong, PROMPT, {}),
        ):
            with pytest.raises((errors.BatchyardError, TypeError)) as caught:
                await sender.generate(prompt, model=MODEL, **options)
            shown.append(f"{caught.value!r} {vars(caught.value)}")
    await send_header(made)
    async with made.client(made.boss) as boss:
        late = await given_and_taken(made, boss)
        shown.append(str(await boss.admin.report()))
        shown += [str(event) async for event in boss.admin.events()]
        shown += [str(each) async for each in boss.admin.requests()]
        shown += await http_pages(made, request_id)
        shown += await commands(made)

    async def traced() -> bool:
        return {"batchyard.requests"} <= set(made.collector.metrics) and (
            len({span.trace_id for span in made.collector.spans}) >= 3
        )

    await until(traced)
    for process in (made.scheduler, made.agent):
        shown += psutil.Process(process.pid).cmdline()
    await made.end()
    shown += [*made.scheduler.lines, *made.agent.lines]
    shown += [body.decode("latin-1") for body in made.collector.raw]
    recorded = (made.files.folder / "recording").read_bytes()
    shown += [recorded.decode("latin-1")]
    state = [p for p in (made.files.folder / "state").rglob("*") if p.is_file()]
    shown += [path.read_bytes().decode("latin-1") for path in state]
    assert len(shown) > 50
    assert len(recorded) > 1000
    assert any('"debug"' in line for line in made.scheduler.lines)
    [line] = [each for each in made.scheduler.lines if '"access_revoked"' in each]
    assert "the fair is over" in line
    assert any(" debug " in line for line in made.agent.lines)
    secrets = [PROMPT, SYSTEM, HEADER, made.user, made.boss, made.join, made.forged, late]
    secrets += [(made.files.folder / "scheduler.key").read_text().splitlines()[1]]
    secrets += [text[:24] for text in answers if len(text) >= 24]
    assert len(secrets) == 11, answers
    for secret in secrets:
        wanted = secret[-20:]
        hidden = base64.b64encode(wanted.encode()).decode()[:20]
        found = [text for text in shown if wanted in text or hidden in text]
        assert not found, (secret[:12], found[0][:300])
