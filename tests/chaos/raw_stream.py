"""One call by the public messages alone: nothing is mended, everything is written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import (
    Call,
    ErrorReason,
    InferenceRequest,
    InferenceResult,
    MultiplexOpen,
    MultiplexRequest,
    SchedulerServiceStub,
    TextInput,
)

TIMEOUT_S = 40


@dataclass
class Heard:
    """Messages as ["started", restarted], ["delta", offset, text] and ["result"]."""

    messages: list[list[Any]] = field(default_factory=list)
    result: InferenceResult | None = None
    status: str = ""

    @property
    def text(self) -> str:
        """What the deltas since the last restart make up."""
        text = ""
        for kind, *facts in self.messages:
            if kind == "started" and facts[0]:
                text = ""
            elif kind == "delta":
                text += facts[1]
        return text

    @property
    def reason(self) -> str:
        """Why it failed; empty: it did not."""
        if self.result is None or not self.result.HasField("error"):
            return ""
        return ErrorReason.Name(self.result.error.reason).removeprefix("ERROR_REASON_")


async def raw_call(address: str, prompt: str, tokens: int) -> Heard:
    """One call on a Multiplex stream of its own, to the end of the stream."""
    request = InferenceRequest(
        model="m", text=TextInput(prompt=prompt), timeout=Duration(seconds=TIMEOUT_S)
    )
    request.params.max_tokens = tokens
    message = MultiplexRequest(
        open=MultiplexOpen(), calls=[Call(call_id=1, request=request, stream=True)], done=True
    )
    heard = Heard()
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub: Any = SchedulerServiceStub
        call = stub(channel).Multiplex(iter([message]))
        try:
            async for answer in call:
                _take(answer, heard)
        except grpc.aio.AioRpcError as error:
            heard.status = error.code().name
    return heard


def _take(answer: Any, heard: Heard) -> None:
    heard.messages.extend(["started", part.restarted] for part in answer.started)
    deltas = answer.deltas
    for index in range(len(deltas.ids)):
        heard.messages.append(["delta", deltas.offsets[index], deltas.texts[index]])
    for part in answer.results:
        heard.messages.append(["result"])
        heard.result = part.result
