"""A stand-in for both services: it keeps their command line contract and does nothing else."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import json, os, signal, sys, threading
arguments = sys.argv[1:]
if "--check-config" in arguments:
    problems = open(arguments[-1]).read().splitlines()
    print(*problems, sep="\\n", file=sys.stderr)
    sys.exit(1 if problems else 0)
config = open(arguments[arguments.index("-c") + 1]).read().split()
if "fail" in config:
    print("cannot start: the disk is gone", file=sys.stderr)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in config else lambda *_: os._exit(0))
print("x" * 200_000, file=sys.stderr)
print(json.dumps({"event": "ready", "arguments": arguments}), flush=True)
print("a line of the log", file=sys.stderr, flush=True)
if "--exit-with-stdin" in arguments:
    sys.stdin.buffer.read()
    os._exit(0)
threading.Event().wait()
"""


def install(folder: Path) -> None:
    """Put both stand-ins into a folder that is to stand in front of sys.path."""
    for module in ("scheduler_service", "node_agent"):
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text("")
        (folder / module / "__main__.py").write_text(SOURCE)
