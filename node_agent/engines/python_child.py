"""The process that runs a user's function: batches come in, answers go out, nothing of the agent.

Frames on standard input and output are 4 bytes of length (little-endian) and a message: a
DispatchBatch for each call, a ConnectRequest with an ItemResult for each of its items. The first
frame out is empty: the function is loaded. What the function prints goes to standard error. SIGUSR1
interrupts a call whose items were all cancelled. When its input closes, the process ends at once,
whatever the function does then, with all that it started.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import os
import select
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.python_request import Request, to_outputs, to_request

LENGTH = struct.Struct("<I")
LOAD_FAILED = 3  # exit status


class Interrupted(BaseException):
    """The call is not wanted any more."""


class Caller:
    """Calls the function, and can be interrupted while it does."""

    def __init__(self, target: str) -> None:
        module, _, name = target.partition(":")
        found = getattr(importlib.import_module(module), name)
        function: Any = found() if inspect.isclass(found) else found
        self._function: Callable[[list[Request]], Any] = function
        self._runner: asyncio.Runner | None = None
        self._calling = False
        signal.signal(signal.SIGUSR1, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        if self._calling:
            self._calling = False
            raise Interrupted

    def __call__(self, requests: list[Request]) -> list[Any]:
        """Return one answer or exception for each request."""
        try:
            self._calling = True
            return self._whole(requests)
        except Interrupted as interruption:
            self._close_runner()
            return [interruption] * len(requests)
        finally:
            self._calling = False

    def _whole(self, requests: list[Request]) -> list[Any]:
        try:
            answers = self._call(requests)
        except Interrupted:
            raise
        except BaseException as error:  # the user's own code: anything may come out, SystemExit too
            if not isinstance(error, Exception):
                self._close_runner()  # its loop may be left in the middle
            if len(requests) == 1:
                return [error]
            traceback.print_exc()
            return [answer for request in requests for answer in self._whole([request])]
        if not isinstance(answers, list | tuple) or len(answers) != len(requests):
            text = f"the function must return a list of {len(requests)} answers, one for each"
            return [TypeError(text)] * len(requests)
        return list(answers)

    def _call(self, requests: list[Request]) -> Any:
        answers = self._function(requests)
        if inspect.isawaitable(answers):
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(_wait(answers))
        return answers

    def _close_runner(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


async def _wait(answers: Any) -> Any:
    return await answers


def main(target: str, folder: str) -> int:
    answers_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints must not mix with the answers
    frames = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nor what it reads, with the batches
    if folder:
        sys.path.insert(0, folder)
    process = os.getpid()
    threading.Thread(target=_end_with_agent, args=(frames.fileno(),), daemon=True).start()
    try:
        caller = Caller(target)
    except BaseException:  # the user's own code, at its import
        traceback.print_exc()
        return LOAD_FAILED
    _write(answers_to, b"")
    while (frame := _read(frames)) is not None:
        reply = _run(caller, frame)
        if os.getpid() != process:
            os._exit(0)  # a copy that the function made of us: the first one answers
        _write(answers_to, reply)
    return 0


def _end_with_agent(descriptor: int) -> None:
    """Our input's other end is the agent's: it closes when the agent is gone, however that came."""
    watch = select.poll()
    watch.register(descriptor, 0)  # errors and hang-ups alone
    watch.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # and whatever the function started
    os._exit(0)


def _run(caller: Caller, frame: bytes) -> bytes:
    batch = node_service_pb2.DispatchBatch.FromString(frame)
    prepared: list[Request | Exception] = []
    for item in batch.items:
        try:
            prepared.append(to_request(batch.model, item.request))
        except Exception as error:  # tensors of a wrong form: the caller's fault
            prepared.append(ValueError(str(error)))
    good = [each for each in prepared if isinstance(each, Request)]
    answers = iter(caller(good) if good else [])
    reply = node_service_pb2.ConnectRequest()
    for item, each in zip(batch.items, prepared, strict=True):
        answer = next(answers) if isinstance(each, Request) else each
        reply.results.append(_result(item, answer))
    return reply.SerializeToString()


def _result(item: node_service_pb2.DispatchItem, answer: object) -> node_service_pb2.ItemResult:
    result = node_service_pb2.ItemResult(dispatch_id=item.dispatch_id)
    outputs: list[inference_pb2.Output] = []
    if not isinstance(answer, BaseException):
        try:
            outputs = to_outputs(answer)
            _check_vectors(len(item.request.embedding.texts), outputs)
        except (RecursionError, TypeError, ValueError) as error:
            answer = TypeError(f"nothing can be made of the answer: {error}")
    if isinstance(answer, BaseException):
        result.error.reason = _reason(answer)
        result.error.message = f"{type(answer).__name__}: {answer}"[:2000]
        result.finish_reason = types_pb2.FINISH_REASON_ERROR
    else:
        result.outputs.extend(outputs)
        result.finish_reason = outputs[0].finish_reason
    return result


def _check_vectors(texts: int, outputs: list[inference_pb2.Output]) -> None:
    if texts and len(outputs) != texts:
        raise ValueError(f"{texts} texts need {texts} vectors, not {len(outputs)}")
    if not all(map(math.isfinite, (x for output in outputs for x in output.embedding))):
        raise ValueError("a vector holds what is no number")


def _reason(error: BaseException) -> types_pb2.ErrorReason:
    if isinstance(error, Interrupted):
        return types_pb2.ERROR_REASON_REVOKED
    if isinstance(error, ValueError):
        return types_pb2.ERROR_REASON_INVALID_ARGUMENT
    if isinstance(error, MemoryError):
        return types_pb2.ERROR_REASON_ENGINE_OOM
    return types_pb2.ERROR_REASON_ENGINE_ERROR


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
