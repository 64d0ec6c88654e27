"""Functions of users, good and bad, for the python engine to serve; prompts say what they do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from node_agent.engines.python_request import Request

sizes: list[int] = []  # of the batches that this process saw


def act(requests: Sequence[Request]) -> list[Any]:
    """Answer each; the first word of a prompt says how."""
    sizes.append(len(requests))
    return [_answer(request) for request in requests]


async def act_later(requests: Sequence[Request]) -> list[Any]:
    """As `act`, in a loop."""
    for request in requests:
        if request.text == "wait":
            await asyncio.Event().wait()
    return act(requests)


class Loaded:
    """A function with something to load."""

    def __init__(self) -> None:
        self.loaded = "loaded"

    def __call__(self, requests: Sequence[Request]) -> list[Any]:
        return [f"{self.loaded}: {request.text}" for request in requests]


class Unloadable:
    """Cannot be loaded."""

    def __init__(self) -> None:
        raise RuntimeError("the weights are not there")


def bad_first(requests: Sequence[Request]) -> list[Any]:
    """Cannot answer its first request."""
    raise RuntimeError("no CUDA")


def too_few(requests: Sequence[Request]) -> list[Any]:
    """Loses answers when there are several."""
    return ["one"]


def _answer(request: Request) -> Any:
    word = request.text.partition(" ")[0]
    if request.texts:
        return [[float(len(text)), 1.0] for text in request.texts]
    if request.tensors:
        return {name: array * 2 for name, array in request.tensors.items()}
    if word == "sizes":
        return sizes
    if word == "pid":
        return str(os.getpid())
    if word == "raise":
        raise RuntimeError("cannot do this one")
    if word == "blame":
        return ValueError("the caller is wrong")
    if word == "exit":
        sys.exit("as a script would")
    if word == "fork":
        os.fork()  # and both go on
    if word == "start":
        return str(subprocess.Popen(["sleep", "600"]).pid)
    if word == "nan":
        return [float("nan")]
    if word == "stdin":
        return sys.stdin.read() + "nothing"
    if word == "crash":
        os._exit(9)
    if word == "leak":
        globals()["leaked"] = b"x" * 200_000_000
    if word == "spin":
        until = time.monotonic() + 60
        while time.monotonic() < until:
            pass
    if word == "deaf":
        threading.Event().wait(60)
    if word == "deafer":
        import signal

        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        threading.Event().wait(60)
    if word == "print":
        sys.stdout.write("this must not mix with the answers\n")
    return f"answer to {request.text}"
