"""What has the server answered so far? Events of one call, gathered into outputs and counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.interface import EngineError, Result
from node_agent.engines.llamacpp_errors import ItemFailed, from_response

TEXT, REASONING = 0, 1  # channels, as in TokenDeltas
Delta = Callable[[int, int, str, int], None]  # choice, channel, text, tokens

_FINISH = {
    "stop": types_pb2.FINISH_REASON_STOP,
    "length": types_pb2.FINISH_REASON_LENGTH,
    "tool_calls": types_pb2.FINISH_REASON_TOOL_CALLS,
    "content_filter": types_pb2.FINISH_REASON_CONTENT_FILTER,
}


class _Choice:
    """One choice, as far as it came."""

    __slots__ = ("finish", "parts", "tokens", "told_tokens")

    def __init__(self) -> None:
        self.parts: tuple[list[str], list[str]] = ([], [])  # by channel
        self.tokens = 0  # by the server's count
        self.told_tokens = 0  # of those, in deltas
        self.finish = types_pb2.FINISH_REASON_UNSPECIFIED


class Answer:
    """The answer to one call; `on_delta` hears of every piece of text."""

    def __init__(self, choices: int, input_field: str, on_delta: Delta) -> None:
        self._choices = [_Choice() for _ in range(choices)]
        self._input_field = input_field
        self._on_delta = on_delta
        self._input_tokens: int | None = None
        self._cached_tokens: int | None = None
        self._prefill_s: float | None = None
        self._decode_s: float | None = None

    @property
    def whole(self) -> bool:
        """Tell whether every choice came to its end."""
        return all(choice.finish for choice in self._choices)

    def take(self, data: str) -> None:
        """Take one event.

        Raises:
            ItemFailed: the server says that it failed.
        """
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            status = int(event["error"].get("code") or 500)
            raise ItemFailed(from_response(status, data, self._input_field))
        self._take_counts(event)
        timings = event.get("timings")
        for choice in event.get("choices", ()):
            self._take_choice(choice, timings)

    def result(self, finish: types_pb2.FinishReason, error: EngineError | None) -> Result:
        """Return the end of the item with what there is.

        `finish` holds for choices that have not ended; without `error` the first one's own counts.
        """
        natural = self._choices[0].finish or finish
        result = Result(
            finish_reason=finish if error is not None else natural,
            outputs=self._outputs(finish),
            error=error,
            input_tokens=self._input_tokens,
            cached_input_tokens=self._cached_tokens,
            prefill_s=self._prefill_s,
            decode_s=self._decode_s,
        )
        if self._input_tokens is not None:
            result.output_tokens = sum(choice.tokens for choice in self._choices)
        return result

    def _take_counts(self, event: dict[str, Any]) -> None:
        progress, timings = event.get("prompt_progress"), event.get("timings")
        if progress:
            self._input_tokens = progress["total"]
            self._cached_tokens = progress["cache"]
        if timings:
            self._input_tokens = timings["cache_n"] + timings["prompt_n"]
            self._cached_tokens = timings["cache_n"]
            self._prefill_s = timings["prompt_ms"] / 1000.0
            self._decode_s = timings["predicted_ms"] / 1000.0

    def _take_choice(self, event: dict[str, Any], timings: dict[str, Any] | None) -> None:
        index = event["index"]
        choice = self._choices[index]
        delta = event.get("delta") or event
        text = _whole_code_points(delta.get("content") or delta.get("text") or "")
        reasoning = _whole_code_points(delta.get("reasoning_content") or "")
        if timings:
            choice.tokens = timings["predicted_n"]
        elif text or reasoning:
            choice.tokens += 1
        for channel, piece in ((REASONING, reasoning), (TEXT, text)):
            if piece:
                choice.parts[channel].append(piece)
                self._on_delta(index, channel, piece, choice.tokens - choice.told_tokens)
                choice.told_tokens = choice.tokens
        if event.get("finish_reason"):
            choice.finish = _FINISH.get(event["finish_reason"], types_pb2.FINISH_REASON_STOP)

    def _outputs(self, finish: types_pb2.FinishReason) -> list[inference_pb2.Output]:
        return [
            inference_pb2.Output(
                index=index,
                text="".join(choice.parts[TEXT]),
                reasoning="".join(choice.parts[REASONING]),
                finish_reason=choice.finish or finish,
            )
            for index, choice in enumerate(self._choices)
            if choice.finish or choice.tokens
        ]


def _whole_code_points(text: str) -> str:
    r"""Return `text` without half code points: JSON may spell them ("\ud83d"), UTF-8 may not."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
