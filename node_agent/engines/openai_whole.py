"""What did an OpenAI-compatible server answer in one piece? Vectors, or a raw body."""

from __future__ import annotations

import json
from typing import Any

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.faults import broken
from node_agent.engines.interface import EngineError, Result

MAX_BODY_BYTES = 64 * 1024 * 1024

_COMPLETE = types_pb2.FINISH_REASON_COMPLETE


class WholeAnswer:
    """The answer to one call that does not stream."""

    def __init__(self, raw_type: str, model: str) -> None:
        """`raw_type` is the content type of a raw answer; empty: it is vectors."""
        self._raw_type = raw_type
        self._model = model
        self._outputs: list[inference_pb2.Output] = []
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None

    def take(self, body: bytes) -> None:
        """Take the whole body.

        Raises:
            ItemFailed: it makes no sense.
        """
        try:
            document = json.loads(body)
            usage = document.get("usage") or {}
            self._input_tokens = usage.get("prompt_tokens")
            self._output_tokens = usage.get("completion_tokens")
            self._outputs = [self._raw(document)] if self._raw_type else _vectors(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise broken(f"the answer has an unknown form: {error!r}", "malformed") from error

    def result(self, finish: types_pb2.FinishReason, error: EngineError | None) -> Result:
        """Return the end of the item."""
        if error is not None:
            return Result(finish_reason=finish, error=error)
        return Result(
            finish_reason=_COMPLETE,
            outputs=self._outputs,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
        )

    def _raw(self, document: dict[str, Any]) -> inference_pb2.Output:
        """The body as it is, but for the model: callers know it by its public name."""
        document["model"] = self._model
        data = json.dumps(document, ensure_ascii=False).encode()
        raw = inference_pb2.RawOutput(content_type=self._raw_type, data=data)
        return inference_pb2.Output(raw=raw, finish_reason=_COMPLETE)


def _vectors(document: dict[str, Any]) -> list[inference_pb2.Output]:
    rows = sorted(document["data"], key=lambda row: int(row["index"]))
    if [row["index"] for row in rows] != list(range(len(rows))):
        raise ValueError("the vectors are not numbered from 0 on")
    return [
        inference_pb2.Output(
            index=row["index"], embedding=row["embedding"], finish_reason=_COMPLETE
        )
        for row in rows
    ]
