"""Real engines, each started once, from an environment of its own, and ended with the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from node_agent.engines.guarded_process import free_port
from scripts.engine_environments import interpreter
from scripts.make_tiny_model import write_tiny_model
from tests.engines import triton_repository
from tests.unit.engines.llamacpp_http import HttpServer, llamacpp_server

HERE = Path(__file__).parent
START_S = 300.0
VLLM_CONTEXT = 30000
VLLM_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
}


@pytest.fixture(scope="session")
def llamacpp(tiny_gguf: str) -> Iterator[HttpServer]:
    """llama.cpp's server with the tiny random model and 8 slots."""
    with llamacpp_server(tiny_gguf, slots=8, context=4096) as server:
        yield server


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model, as llama.cpp loads it."""
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(model)
    return str(model)


@pytest.fixture(scope="session")
def vllm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model in `model` and an adapter for it in `adapter`, as vLLM loads them."""
    folder = tmp_path_factory.mktemp("vllm")
    script = str(HERE / "tiny_vllm_model.py")
    subprocess.run([_python("vllm"), script, str(folder), str(VLLM_CONTEXT)], check=True)
    return folder


@pytest.fixture(scope="session")
def vllm(vllm_folder: Path) -> Iterator[str]:
    """vLLM on the CPU with a tiny random model; its URL."""
    port, log = free_port(), vllm_folder / "log"
    command = [
        _python("vllm"), "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(vllm_folder / "model"), "--served-model-name", "m",
        "--host", "127.0.0.1", "--port", str(port),
        "--max-num-seqs", "8", "--enforce-eager", "--scheduling-policy", "priority",
        "--enable-lora", "--max-lora-rank", "8", "--num-gpu-blocks-override", "1024",
    ]  # fmt: skip
    with _running(command, log, VLLM_ENV) as process:
        _until_answers(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Triton with the models of triton_models.py; its gRPC address."""
    port = free_port()
    with triton_server(tmp_path_factory.mktemp("triton"), port):
        yield f"127.0.0.1:{port}"


@contextmanager
def triton_server(folder: Path, port: int) -> Iterator[psutil.Process]:
    """Triton at this gRPC port of loopback, its models in `folder`."""
    triton_repository.write(folder / "models")
    ports = {"grpc": port, "http": free_port()}
    flags = [f"--{kind}-port={port}" for kind, port in ports.items()]
    flags += [f"--{kind}-address=127.0.0.1" for kind in ports]
    command, env = triton_repository.command(
        Path(_python("triton")), folder / "models", *flags, "--allow-metrics=false"
    )
    log = folder / "log"
    with _running(command, log, env) as process:
        _until_answers(f"http://127.0.0.1:{ports['http']}/v2/health/ready", process, log)
        (server,) = psutil.Process(process.pid).children()
        yield server


def _python(name: str) -> str:
    python = interpreter(name)
    if not python.is_file():
        pytest.skip(f"the environment {name!r} is not installed here: make test-engines")
    return str(python)


@contextmanager
def _running(
    command: Sequence[str], log: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, with a session of its own that is ended whole."""
    guard = [sys.executable, "-m", "node_agent.engines.child_guard", *command]
    with log.open("wb") as out:
        process = subprocess.Popen(
            guard, stdin=subprocess.PIPE, stdout=out, stderr=out, env={**os.environ, **env}
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def _until_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            if time.monotonic() > give_up_at or process.poll() is not None:
                words = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"nothing answers at {url}: {words}") from error
            time.sleep(0.5)
