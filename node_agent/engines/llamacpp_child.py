"""The child process of a llama.cpp engine: llama.cpp's own server, and nothing of the agent.

A process of its own, so that a crash in native code takes no agent with it. It reads one line of
JSON from standard input (nothing secret is in its command line), opens the server on a free port
of the loopback, writes one line of JSON with its address to standard output, and exits when its
standard input closes: so it never outlives its agent, however that ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TypedDict


class ChildSettings(TypedDict):
    """The line that the parent writes."""

    model_path: str
    model: str
    slots: int
    context: int  # tokens of all slots together
    threads: int
    batch_threads: int
    batch_tokens: int
    api_key: str  # empty: none is asked for


class ChildReady(TypedDict):
    """The line that the child answers."""

    address: str
    version: str


def main() -> None:
    settings: ChildSettings = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what native code prints must not mix with the answer
    import xllamacpp

    server = xllamacpp.Server(_parameters(xllamacpp, settings))
    ready: ChildReady = {"address": server.listening_address, "version": xllamacpp.__version__}
    answer.write(json.dumps(ready) + "\n")
    answer.close()
    while sys.stdin.readline():
        pass
    os._exit(0)  # at once: the server's destructor would wait for its open requests


def _parameters(xllamacpp: Any, settings: ChildSettings) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["model_path"]
    parameters.model_alias = {settings["model"]}
    parameters.n_parallel = settings["slots"]
    parameters.n_ctx = settings["context"]
    parameters.cpuparams.n_threads = settings["threads"]
    parameters.cpuparams_batch.n_threads = settings["batch_threads"]
    parameters.n_batch = parameters.n_ubatch = settings["batch_tokens"]
    if settings["api_key"]:
        parameters.api_keys = [settings["api_key"]]
    parameters.endpoint_slots = parameters.endpoint_metrics = parameters.endpoint_props = True
    parameters.cache_ram_mib = 0  # no copies of prompts beyond the slots' own
    parameters.warmup = False  # the agent sends a true request instead
    parameters.ui = False
    parameters.verbosity = 1
    return parameters


if __name__ == "__main__":
    main()
