"""What has an OpenAI-compatible server answered so far? Events of one call, gathered and passed on.

Takes what the engines really send: texts of chats and of plain completions, reasoning under both of
its names, tool calls in pieces, log probabilities in both forms, usage at the end, at each event or
never. What no sound server sends ends the item with ENGINE_ERROR and what it has so far.
"""

from __future__ import annotations

import json
from typing import Any

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.code_points import join, whole
from node_agent.engines.faults import ItemFailed, broken, from_response
from node_agent.engines.interface import EngineError, Item, Result, Sink
from node_agent.engines.openai_logprobs import read_logprobs
from node_agent.engines.told_values import count, seconds

TEXT, REASONING, FIRST_TOOL = 0, 1, 16  # channels, as in TokenDeltas
MAX_TOOL_CALLS = 1024

FINISH = {
    "stop": types_pb2.FINISH_REASON_STOP,
    "eos_token": types_pb2.FINISH_REASON_STOP,
    "stop_sequence": types_pb2.FINISH_REASON_STOP,
    "length": types_pb2.FINISH_REASON_LENGTH,
    "tool_calls": types_pb2.FINISH_REASON_TOOL_CALLS,
    "function_call": types_pb2.FINISH_REASON_TOOL_CALLS,
    "content_filter": types_pb2.FINISH_REASON_CONTENT_FILTER,
}
_GAVE_UP = frozenset({"abort", "error"})  # said by engines that dropped the request


class _Choice:
    """One choice, as far as it came."""

    __slots__ = ("begun", "calls", "finish", "logprobs", "parts", "tokens", "told_tokens")

    def __init__(self) -> None:
        self.begun: dict[int, str] = {}  # by channel: half a character, whose rest is to come
        self.parts: tuple[list[str], list[str]] = ([], [])  # by channel
        self.calls: dict[int, tuple[types_pb2.ToolCall, list[str]]] = {}
        self.logprobs: list[types_pb2.TokenLogprob] = []
        self.tokens = 0  # by the server's count, else one for each piece
        self.told_tokens = 0  # of those, in deltas
        self.finish = types_pb2.FINISH_REASON_UNSPECIFIED

    @property
    def began(self) -> bool:
        return bool(self.finish or self.tokens or self.calls or any(self.parts))


class StreamedAnswer:
    """The answer to one streamed call; `sink` hears of it as it comes if the item streams."""

    def __init__(
        self, choices: int, input_field: str, sink: Sink, item: Item, engine: str = "llama.cpp"
    ) -> None:
        self._choices = [_Choice() for _ in range(choices)]
        self._input_field = input_field
        self._sink = sink
        self._item = item
        self._engine = engine
        self._wants_logprobs = item.request.output.HasField("logprobs")
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None  # of all choices, by usage
        self._cached_tokens: int | None = None
        self._prefill_s: float | None = None
        self.prefill_left = 0  # tokens of the prompt that it says it has not taken in yet
        self._decode_s: float | None = None
        self.done = False  # the server says that nothing will follow

    @property
    def whole(self) -> bool:
        """Tell whether every choice came to its end."""
        return all(choice.finish for choice in self._choices)

    @property
    def began(self) -> bool:
        """Tell whether there is any output."""
        return any(choice.began for choice in self._choices)

    def take(self, data: str) -> None:
        """Take one event.

        Raises:
            ItemFailed: the server says that it failed, or what it says makes no sense.
        """
        if data == "[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise broken(f"{self._engine} sent an event that is not JSON", "malformed") from error
        try:
            self._take_event(event, data)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            text = f"{self._engine} sent an event of an unknown form: {error!r}"
            raise broken(text, "malformed") from error

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
        if self._input_tokens is not None or self._output_tokens is not None or self.began:
            # Usage knows of tokens that made no text; of several choices some tell only the last.
            counted = sum(choice.tokens for choice in self._choices)
            result.output_tokens = max(self._output_tokens or 0, counted)
        return result

    def _take_event(self, event: dict[str, Any], data: str) -> None:
        fault = event.get("error")
        if fault:
            code = fault.get("code") if isinstance(fault, dict) else None
            status = code if isinstance(code, int) else 500
            raise ItemFailed(from_response(status, data, self._input_field, engine=self._engine))
        self._take_counts(event)
        timings, usage = event.get("timings"), event.get("usage")
        exact: int | None = None
        if timings:
            exact = count(timings.get("predicted_n"))
        elif usage and len(self._choices) == 1:
            exact = count(usage.get("completion_tokens"))
        for choice in event.get("choices") or ():
            self._take_choice(choice, exact)

    def _take_counts(self, event: dict[str, Any]) -> None:
        progress, timings = event.get("prompt_progress"), event.get("timings")
        usage = event.get("usage")
        if progress:
            total, cached = count(progress.get("total")), count(progress.get("cache"))
            self._input_tokens, self._cached_tokens = total, cached
            self.prefill_left = max(0, (total or 0) - (count(progress.get("processed")) or 0))
        else:
            self.prefill_left = 0
        if timings:
            cached, read = count(timings.get("cache_n")), count(timings.get("prompt_n"))
            if cached is not None and read is not None:
                self._input_tokens, self._cached_tokens = cached + read, cached
            self._prefill_s = seconds(timings.get("prompt_ms"))
            self._decode_s = seconds(timings.get("predicted_ms"))
        if usage:
            self._input_tokens = _told(usage.get("prompt_tokens"), self._input_tokens)
            self._output_tokens = _told(usage.get("completion_tokens"), self._output_tokens)
            details = usage.get("prompt_tokens_details") or {}
            self._cached_tokens = _told(details.get("cached_tokens"), self._cached_tokens)

    def _take_choice(self, event: dict[str, Any], exact: int | None) -> None:
        index = event.get("index") or 0
        if index < 0:
            raise ValueError(f"choice {index}")
        choice = self._choices[index]
        delta = event.get("delta") or event
        text = delta.get("content") or delta.get("text") or ""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        calls = delta.get("tool_calls") or ()
        if exact is not None:
            choice.tokens = exact
        elif text or reasoning or calls:
            choice.tokens += 1
        if self._wants_logprobs and event.get("logprobs"):
            self._take_logprobs(index, choice, event["logprobs"])
        for channel, piece in ((REASONING, reasoning), (TEXT, text)):
            if piece:
                self._take_piece(index, choice, channel, join(choice.begun, channel, piece))
        for call in calls:
            self._take_call(index, choice, call)
        reason = event.get("finish_reason")
        if reason and choice.begun:
            self._take_stumps(index, choice)
        if reason in _GAVE_UP:
            raise broken(f"{self._engine} gave the request up ({reason})", reason)
        if reason:
            choice.finish = FINISH.get(reason, types_pb2.FINISH_REASON_STOP)

    def _take_piece(self, index: int, choice: _Choice, channel: int, piece: str) -> None:
        if not piece:
            return
        if channel < FIRST_TOOL:
            choice.parts[channel].append(piece)
        else:
            choice.calls[channel - FIRST_TOOL][1].append(piece)
        self._tell(index, choice, channel, piece)

    def _take_stumps(self, index: int, choice: _Choice) -> None:
        """It ends, and a character has only begun: its rest will never come."""
        begun, choice.begun = choice.begun, {}
        for channel, half in begun.items():
            self._take_piece(index, choice, channel, whole(half))

    def _take_call(self, index: int, choice: _Choice, call: dict[str, Any]) -> None:
        number = call.get("index")
        if number is None:  # whole calls in one event come without a number
            number = len(choice.calls)
        if type(number) is not int or not 0 <= number < MAX_TOOL_CALLS:
            raise ValueError(f"tool call {number}")
        function = call.get("function") or {}
        if number not in choice.calls:
            call_id = call.get("id") or f"call-{self._item.dispatch_id:x}-{index}-{number}"
            name = whole(function["name"])
            head = types_pb2.ToolCall(id=whole(call_id), name=name, index=number)
            choice.calls[number] = (head, [])
            if self._item.stream:
                extra = types_pb2.DeltaExtra(tool_call=head)
                self._sink.extra(self._item.dispatch_id, index, FIRST_TOOL + number, extra)
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # some servers send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        channel = FIRST_TOOL + number
        self._take_piece(index, choice, channel, join(choice.begun, channel, arguments))

    def _take_logprobs(self, index: int, choice: _Choice, event: dict[str, Any]) -> None:
        rows = read_logprobs(event)
        choice.logprobs += rows
        if rows and self._item.stream:
            extra = types_pb2.DeltaExtra(logprobs=rows)
            self._sink.extra(self._item.dispatch_id, index, TEXT, extra)

    def _tell(self, index: int, choice: _Choice, channel: int, piece: str) -> None:
        if self._item.stream:
            tokens = choice.tokens - choice.told_tokens
            self._sink.delta(self._item.dispatch_id, index, channel, piece, tokens)
        choice.told_tokens = choice.tokens

    def _outputs(self, finish: types_pb2.FinishReason) -> list[inference_pb2.Output]:
        return [
            inference_pb2.Output(
                index=index,
                text="".join(choice.parts[TEXT]),
                reasoning="".join(choice.parts[REASONING]),
                tool_calls=[_called(*call) for call in choice.calls.values()],
                logprobs=choice.logprobs,
                finish_reason=choice.finish or finish,
            )
            for index, choice in enumerate(self._choices)
            if choice.began
        ]


def _called(head: types_pb2.ToolCall, arguments: list[str]) -> types_pb2.ToolCall:
    return types_pb2.ToolCall(
        id=head.id, name=head.name, index=head.index, arguments_json="".join(arguments)
    )


def _told(value: object, otherwise: int | None) -> int | None:
    told = count(value)
    return told if told is not None else otherwise
