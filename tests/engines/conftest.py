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

import pytest

from node_agent.engines.guarded_process import free_port
from scripts.engine_environments import interpreter
from scripts.make_tiny_model import write_tiny_model
from tests.unit.engines.llamacpp_http import HttpServer, llamacpp_server

HERE = Path(__file__).parent
START_S = 300.0
VLLM_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


@pytest.fixture(scope="session")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """llama.cpp's server with the tiny random model and 8 slots."""
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(model)
    with llamacpp_server(str(model), slots=8, context=4096) as server:
        yield server


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM on the CPU with a tiny random model; its URL."""
    python = _python("vllm")
    folder = tmp_path_factory.mktemp("vllm")
    subprocess.run([python, str(HERE / "tiny_vllm_model.py"), str(folder)], check=True)
    port = free_port()
    command = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port),
        "--max-num-seqs", "8", "--enforce-eager", "--scheduling-policy", "priority",
    ]  # fmt: skip
    with _running(command, folder / "log", VLLM_ENV):
        _until_answers(f"http://127.0.0.1:{port}/v1/models", folder / "log")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Triton with the models of triton_models.py; its gRPC address."""
    python = _python("triton")
    grpc_port, http_port = free_port(), free_port()
    log = tmp_path_factory.mktemp("triton") / "log"
    script = str(HERE / "triton_models.py")
    with _running([python, script, str(grpc_port), str(http_port)], log, {}):
        for model in ("double", "slow", "words"):
            _until_answers(f"http://127.0.0.1:{http_port}/v2/models/{model}/ready", log)
        yield f"127.0.0.1:{grpc_port}"


def _python(name: str) -> str:
    python = interpreter(name)
    if not python.is_file():
        pytest.skip(f"the environment {name!r} is not installed here: make test-engines")
    return str(python)


@contextmanager
def _running(command: Sequence[str], log: Path, env: dict[str, str]) -> Iterator[None]:
    """The command, with a session of its own that is ended whole."""
    guard = [sys.executable, "-m", "node_agent.engines.child_guard", *command]
    with log.open("wb") as out:
        process = subprocess.Popen(
            guard, stdin=subprocess.PIPE, stdout=out, stderr=out, env={**os.environ, **env}
        )
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def _until_answers(url: str, log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            if time.monotonic() > give_up_at:
                words = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"nothing answers at {url}: {words}") from error
            time.sleep(0.5)
