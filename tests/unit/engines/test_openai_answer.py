"""A stream is read right however the network cuts it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.faults import ItemFailed
from node_agent.engines.interface import Item
from node_agent.engines.openai_answer import StreamedAnswer
from node_agent.engines.openai_whole import WholeAnswer
from node_agent.engines.server_sent_events import EventDecoder

TEXT = "长城 is 10,000 里 🙂👩‍👩‍👧 long"


def event(text: str | None, tokens: int, finish: str | None = None, index: int = 0) -> str:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    timings = {
        "cache_n": 2,
        "prompt_n": 3,
        "prompt_ms": 40.0,
        "predicted_n": tokens,
        "predicted_ms": 9.0,
    }
    return json.dumps({"choices": [choice], "timings": timings}, ensure_ascii=False)


def stream(*events: str) -> bytes:
    return "".join(f"data: {e}\n\n" for e in (*events, "[DONE]")).encode()


class Pieces:
    """Keeps what a sink is told."""

    def __init__(self) -> None:
        self.deltas: list[tuple[Any, ...]] = []
        self.extras: list[tuple[int, int, types_pb2.DeltaExtra]] = []

    def delta(self, _id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        self.deltas.append((choice, channel, text, tokens))

    def extra(self, _id: int, choice: int, channel: int, extra: types_pb2.DeltaExtra) -> None:
        self.extras.append((choice, channel, extra))


def item(**output: Any) -> Item:
    request = inference_pb2.InferenceRequest(output=inference_pb2.OutputOptions(**output))
    return Item(
        dispatch_id=1,
        attempt=1,
        model="m",
        request=request,
        max_tokens=0,
        stream=True,
        priority=5,
    )


def feed(answer: StreamedAnswer, payload: bytes, size: int) -> None:
    decoder = EventDecoder()
    for start in range(0, len(payload), size):
        for data in decoder.feed(payload[start : start + size]):
            answer.take(data)


def read(
    payload: bytes, size: int, choices: int = 1
) -> tuple[StreamedAnswer, list[tuple[Any, ...]]]:
    pieces = Pieces()
    answer = StreamedAnswer(choices, "text", cast(Any, pieces), item())
    feed(answer, payload, size)
    return answer, pieces.deltas


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_no_code_point_is_split_wherever_the_bytes_are(size: int) -> None:
    """Behaviour 95: one byte per write, with CJK and 4-byte emoji."""
    events = [event(c, i + 1) for i, c in enumerate(TEXT)]
    answer, deltas = read(stream(*events, event(None, len(TEXT), "stop")), size)
    assert "".join(delta[2] for delta in deltas) == TEXT
    result = answer.result(types_pb2.FINISH_REASON_LENGTH, None)
    assert result.outputs[0].text == TEXT
    assert result.finish_reason == types_pb2.FINISH_REASON_STOP
    assert answer.whole


def pieces_of(*contents: bytes) -> list[tuple[Any, ...]]:
    row = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    answer, deltas = read(b"".join(row % content for content in contents) + end, 9)
    text = answer.result(types_pb2.FINISH_REASON_STOP, None).outputs[0].text
    assert text == "".join(delta[2] for delta in deltas)
    return [delta[2:] for delta in deltas]


@pytest.mark.parametrize(
    ("contents", "pieces"),
    [
        ((rb"a\ud83d", rb"\ude00b"), [("a", 1), ("\U0001f600b", 1)]),
        ((rb"\ud83d", b"", rb"\udc80"), [("\U0001f480", 2)]),
        ((rb"\ud83d\ude00",), [("\U0001f600", 1)]),
        ((rb"\ud83d", b"a"), [("\ufffda", 2)]),
        ((rb"\ude00",), [("\ufffd", 1)]),
        ((rb"a\ud83d",), [("a", 1), ("\ufffd", 0)]),
        ((b"\xf0", b"\x9f", b"\x98", b"\x80!"), [("\U0001f600!", 4)]),
        ((b"\xe9\x95", b"\xbf"), [("\u957f", 2)]),
        ((b"\xc3", rb"\u00a9"), [("\ufffd\u00a9", 2)]),
        ((b"\x80\xff", b"a\xe9"), [("\ufffd\ufffd", 1), ("a", 1), ("\ufffd", 0)]),
        (("\ufffd".encode(), "\ufffd".encode()), [("\ufffd", 1), ("\ufffd", 1)]),
    ],
)
def test_halves_of_a_character_are_joined_and_none_gets_out(
    contents: tuple[bytes, ...], pieces: list[tuple[str, int]]
) -> None:
    """Behaviour 95. Tokens that made no whole character are counted with the next one."""
    assert pieces_of(*contents) == pieces


def test_halves_are_joined_within_their_choice_and_channel_only() -> None:
    rows = [
        (0, {"reasoning_content": "\ud83d"}),
        (0, {"content": "\ude00"}),
        (1, {"content": "\ude00"}),
        (0, {"reasoning_content": "\ude00"}),
    ]
    events = [json.dumps({"choices": [{"index": i, "delta": delta}]}) for i, delta in rows]
    _, deltas = read(stream(*events), 9, choices=2)
    assert [delta[:3] for delta in deltas] == [
        (0, 0, "\ufffd"),
        (1, 0, "\ufffd"),
        (0, 1, "\U0001f600"),
    ]


def test_halves_of_a_tool_calls_arguments_are_joined() -> None:
    row = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{%s}}]}}]}'
    bodies = ['"name":"f\\ud83d","arguments":"\\ud83d"', '"arguments":"\\ude00"']
    answer, deltas = read(stream(*(row % body for body in bodies)), 9)
    assert [delta[:3] for delta in deltas] == [(0, 16, "\U0001f600")]
    (call,) = answer.result(types_pb2.FINISH_REASON_STOP, None).outputs[0].tool_calls
    assert (call.name, call.arguments_json) == ("f\ufffd", "\U0001f600")


def test_half_a_character_is_not_sent_of_an_answer_that_breaks_off() -> None:
    """Whoever goes on elsewhere begins behind what was whole."""
    answer, deltas = read(b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n', 9)
    assert deltas == [(0, 0, "a", 1)]
    assert not answer.whole
    assert answer.result(types_pb2.FINISH_REASON_ERROR, None).outputs[0].text == "a"


def test_error_that_holds_half_a_character_can_be_sent() -> None:
    with pytest.raises(ItemFailed) as caught:
        read(stream(r'{"error": {"code": 400, "message": "no \ud83d"}}'), 10)
    assert caught.value.error.message == "no \ufffd"


def test_held_back_tokens_are_counted_with_the_next_text() -> None:
    """The server keeps half a code point, or what may become a stop text, to itself."""
    _, deltas = read(stream(event("a", 1), event(None, 2), event("", 3), event("长", 4)), 10)
    assert [(delta[2], delta[3]) for delta in deltas] == [("a", 1), ("长", 3)]


def test_usage_is_known_at_any_moment() -> None:
    answer, _ = read(stream(event("a", 1), event("b", 2)), 10)
    result = answer.result(types_pb2.FINISH_REASON_CANCELLED, None)
    assert (result.input_tokens, result.cached_input_tokens, result.output_tokens) == (5, 2, 2)
    assert (result.prefill_s, result.decode_s) == (0.04, 0.009)


def test_reasoning_has_its_own_channel() -> None:
    piece = '{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}'
    answer, deltas = read(stream(piece, event("yes", 2, "stop")), 10)
    assert [(delta[1], delta[2]) for delta in deltas] == [(1, "hm"), (0, "yes")]
    assert answer.result(types_pb2.FINISH_REASON_STOP, None).outputs[0].reasoning == "hm"


def test_answer_is_whole_when_every_choice_has_ended() -> None:
    first, second = event("a", 1, "length", 1), event("b", 1, "stop", 0)
    assert not read(stream(first), 10, choices=2)[0].whole
    answer, _ = read(stream(first, second), 10, choices=2)
    assert answer.whole
    result = answer.result(types_pb2.FINISH_REASON_STOP, None)
    assert [output.text for output in result.outputs] == ["b", "a"]
    assert result.output_tokens == 2


def test_error_inside_the_stream_ends_the_item() -> None:
    with pytest.raises(ItemFailed) as caught:
        read(stream('{"error": {"code": 500, "message": "no memory"}}'), 10)
    assert caught.value.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
    assert "no memory" in caught.value.error.message


def test_tool_calls_are_told_apart_and_their_heads_come_first() -> None:
    calls = [
        [{"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x":'}}],
        [{"index": 1, "id": "b", "function": {"name": "go", "arguments": "{}"}}],
        [{"index": 0, "function": {"arguments": "1}"}}],
    ]
    events = [json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": c}}]}) for c in calls]
    events.append('{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}')
    pieces = Pieces()
    answer = StreamedAnswer(1, "chat", cast(Any, pieces), item())
    feed(answer, stream(*events), 10)
    assert [(c, e.tool_call.id, e.tool_call.name) for _, c, e in pieces.extras] == [
        (16, "a", "look"),
        (17, "b", "go"),
    ]
    assert [(d[1], d[2]) for d in pieces.deltas] == [(16, '{"x":'), (17, "{}"), (16, "1}")]
    result = answer.result(types_pb2.FINISH_REASON_LENGTH, None)
    assert result.finish_reason == types_pb2.FINISH_REASON_TOOL_CALLS
    (output,) = result.outputs
    assert [c.arguments_json for c in output.tool_calls] == ['{"x":1}', "{}"]


def test_log_probabilities_come_before_their_text_in_both_forms() -> None:
    chat = {
        "content": [
            {
                "token": "é",
                "bytes": [195],
                "logprob": -0.5,
                "top_logprobs": [{"token": "b", "logprob": -2.0}],
            }
        ]
    }
    plain = {"tokens": ["c"], "token_logprobs": [-0.1], "top_logprobs": [{"d": -3.0, "c": -0.1}]}
    events = [
        json.dumps({"choices": [{"index": 0, "delta": {"content": "é"}, "logprobs": chat}]}),
        json.dumps({"choices": [{"index": 0, "text": "c", "logprobs": plain}]}),
    ]
    pieces = Pieces()
    answer = StreamedAnswer(1, "chat", cast(Any, pieces), item(logprobs=2))
    feed(answer, stream(*events), 99)
    first, second = (extra.logprobs[0] for _, _, extra in pieces.extras)
    assert (first.token, first.logprob, first.alternatives[0].token) == (b"\xc3", -0.5, b"b")
    assert [a.token for a in second.alternatives] == [b"c", b"d"]
    assert len(answer.result(types_pb2.FINISH_REASON_STOP, None).outputs[0].logprobs) == 2


def test_usage_may_come_at_the_end_or_never() -> None:
    told = [event("a", 0), '{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9}}']
    plain = [json.dumps({"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]})]
    result = read(stream(*told), 9)[0].result(types_pb2.FINISH_REASON_STOP, None)
    assert (result.input_tokens, result.output_tokens) == (4, 9)
    result = read(stream(*plain), 9)[0].result(types_pb2.FINISH_REASON_STOP, None)
    assert (result.input_tokens, result.output_tokens) == (None, 1)  # not 0: unknown


def test_counts_that_make_no_sense_are_unknown() -> None:
    """Their texts count all the same; no count is larger than a message can hold."""
    for odd in (2**40, -1, "9", 1.5, None, True):
        choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
        timings = dict.fromkeys(("cache_n", "prompt_n", "predicted_n"), odd)
        timings |= dict.fromkeys(("prompt_ms", "predicted_ms"), "-1")
        progress = {"total": odd, "cache": odd, "processed": odd}
        usage = {"prompt_tokens": odd, "completion_tokens": odd}
        event = {
            "choices": [choice], "timings": timings, "prompt_progress": progress, "usage": usage
        }  # fmt: skip
        answer, deltas = read(stream(json.dumps(event)), 50)
        assert deltas == [(0, 0, "a", 1)]
        assert answer.prefill_left == 0
        result = answer.result(types_pb2.FINISH_REASON_STOP, None)
        assert (result.input_tokens, result.output_tokens) == (None, 1)
        assert (result.prefill_s, result.decode_s) == (None, None)


def test_raw_answer_is_valid_json_whatever_the_server_wrote() -> None:
    """Half a code point stays spelled; what is no number is the engine's fault."""
    answer = WholeAnswer("application/json", "m", 1)
    answer.take(b'{"text": "\\ud83d", "usage": {"prompt_tokens": "7"}}')
    result = answer.result(types_pb2.FINISH_REASON_STOP, None)
    assert json.loads(result.outputs[0].raw.data.decode())["text"] == "\ud83d"
    assert result.input_tokens is None
    for odd in (b'{"x": NaN}', b'{"x": 1e999}', b"[" * 100_000):
        with pytest.raises(ItemFailed, match="unknown form"):
            answer.take(odd)


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[]",
        "7",
        '{"choices": 3}',
        '{"choices": [{"index": 5}]}',
        '{"choices": [{"index": -1}]}',
        '{"choices": [{"delta": {"content": 9}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"index": 2000, "function": {"name": "x"}}]}}]}',
        '{"choices": [{"finish_reason": "abort"}]}',
        '{"choices": [{"delta": {"tool_calls": [{"index": 1.0, "function": {"name": "x"}}]}}]}',
        pytest.param("[" * 100_000, id="nested without end"),
        '{"error": "out of order"}',
    ],
)
def test_what_makes_no_sense_is_the_engines_fault(data: str) -> None:
    with pytest.raises(ItemFailed) as caught:
        read(stream(data), 10)
    assert caught.value.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR


def test_comments_and_foreign_lines_are_skipped() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b": ping\r\n\r\nid: 4\r\ndata: a\r\ndata: b\r\n\r\n\n") == ["a\nb"]
