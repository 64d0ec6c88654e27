"""What did an OpenAI-compatible server answer in one piece? Vectors, or a raw body."""

from __future__ import annotations

import json
import math
from typing import Any

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.faults import broken
from node_agent.engines.interface import EngineError, Result
from node_agent.engines.told_values import count

MAX_BODY_BYTES = 64 * 1024 * 1024

_COMPLETE = types_pb2.FINISH_REASON_COMPLETE


class WholeAnswer:
    """The answer to one call that does not stream."""

    def __init__(self, raw_type: str, model: str, vectors: int) -> None:
        """`raw_type` is the content type of a raw answer; empty: it is so many `vectors`."""
        self._raw_type = raw_type
        self._vectors = vectors
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
            self._input_tokens = count(usage.get("prompt_tokens"))
            self._output_tokens = count(usage.get("completion_tokens"))
            raw = bool(self._raw_type)
            self._outputs = [self._raw(document)] if raw else _vectors(document, self._vectors)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
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
        try:
            data = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:  # half a code point, which JSON may spell and UTF-8 may not
            data = json.dumps(document, allow_nan=False).encode()
        raw = inference_pb2.RawOutput(content_type=self._raw_type, data=data)
        return inference_pb2.Output(raw=raw, finish_reason=_COMPLETE)


def _vectors(document: dict[str, Any], expected: int) -> list[inference_pb2.Output]:
    rows = sorted(document["data"], key=lambda row: int(row["index"]))
    if [row["index"] for row in rows] != list(range(expected)):
        raise ValueError(f"{expected} texts need {expected} vectors, numbered from 0 on")
    outputs = [
        inference_pb2.Output(
            index=row["index"], embedding=row["embedding"], finish_reason=_COMPLETE
        )
        for row in rows
    ]
    for output in outputs:
        if not output.embedding or not all(map(math.isfinite, output.embedding)):
            raise ValueError("a vector is empty, or holds what is no number")
    return outputs
