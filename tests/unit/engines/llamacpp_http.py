"""A true llama.cpp server on the loopback, as a user would run one, to attach engines to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from node_agent.engines.llamacpp_child import ChildSettings
from node_agent.engines.llamacpp_process import CHILD_MODULE


@dataclass(slots=True)
class HttpServer:
    """It runs until the end of `llamacpp_server`."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def llamacpp_server(
    model_path: str, *, slots: int = 4, context: int = 30000, api_key: str = "", threads: int = 1
) -> Iterator[HttpServer]:
    """Serve the model as "m"; `context` is tokens per slot."""
    settings: ChildSettings = {
        "model_path": model_path,
        "model": "m",
        "slots": slots,
        "context": context * slots,
        "threads": threads,
        "batch_threads": threads,
        "batch_tokens": 256,
        "api_key": api_key,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", CHILD_MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        yield HttpServer(json.loads(process.stdout.readline())["address"], process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
