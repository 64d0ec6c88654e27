"""`batchyard run`: what is sent, what is printed, and that Ctrl-C cancels on the server."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any

import grpc
import pytest

from batchyard.v1 import inference_pb2 as inference
from batchyard.v1 import scheduler_service_pb2 as scheduler
from batchyard.v1 import types_pb2 as types
from tests.unit.cli.messages import instant, length
from tests.unit.cli.scripted import Refusal, Scripted


def answered(text: str, **changes: Any) -> inference.InferenceResult:
    result = inference.InferenceResult(
        request_id="r1",
        model="small",
        finish_reason=types.FINISH_REASON_STOP,
        node_id="n1",
        usage=types.Usage(output_tokens=3),
        timings=types.Timings(
            receive_time=instant(0), finish_time=instant(1.5), queue_duration=length(0.25)
        ),
    )
    if text:
        result.outputs.add(text=text)
    result.MergeFrom(inference.InferenceResult(**changes))
    return result


def models(scripted: Scripted, *names: str) -> None:
    listed = [scheduler.ModelInfo(model=name) for name in names]
    scripted.on("ListModels", scheduler.ListModelsResponse(models=listed))


def generates(scripted: Scripted, result: inference.InferenceResult) -> None:
    scripted.on("Generate", scheduler.GenerateResponse(result=result))


def streams(scripted: Scripted, *texts: str) -> None:
    offset, events = 0, []
    started = scheduler.Started(attempt=1, node_id="n1", model="small", output_id=9)
    events.append(scheduler.GenerateStreamResponse(started=started))
    for text in texts:
        deltas = types.TokenDeltas(offsets=[offset], texts=[text])
        events.append(scheduler.GenerateStreamResponse(deltas=deltas))
        offset += len(text.encode())
    result = answered("", output_id=9)
    scripted.on("GenerateStream", [*events, scheduler.GenerateStreamResponse(result=result)])


def test_answer_is_printed_and_every_option_is_sent(against: Any, scripted: Scripted) -> None:
    generates(scripted, answered("blue"))
    done = against(
        "run", "Why?", "-m", "small", "--priority", "8", "--max-wait", "500ms", "--timeout", "1m",
        "--degrade", "a", "--degrade", "b", "--max-tokens", "20", "--task-type", "chat",
        "--request-id", "mine", "--tenant", "acme", "--temperature", "0",
    )  # fmt: skip
    assert done.exit_code == 0, done.err
    assert done.out == "blue\n"
    request = scripted.requests("Generate")[0].request
    assert request.text.prompt == "Why?"
    assert request.priority == 8
    assert request.max_wait.nanos == 500_000_000
    assert 59 < request.timeout.seconds + request.timeout.nanos / 1e9 <= 60
    assert list(request.degrade.models) == ["a", "b"]
    assert request.params.max_tokens == 20
    assert request.params.temperature == 0
    assert request.params.HasField("temperature")
    assert (request.task_type, request.request_id, request.tenant) == ("chat", "mine", "acme")


def test_only_model_is_taken_where_none_is_named(against: Any, scripted: Scripted) -> None:
    models(scripted, "only")
    generates(scripted, answered("x"))
    assert against("run", "hi").exit_code == 0
    assert scripted.requests("Generate")[0].request.model == "only"


def test_model_whose_nodes_are_gone_is_none_to_choose_from(
    against: Any, scripted: Scripted
) -> None:
    gone = scheduler.ModelInfo(model="gone")
    there = scheduler.ModelInfo(model="there", state=types.MODEL_STATE_ACTIVE)
    scripted.on("ListModels", scheduler.ListModelsResponse(models=[gone, there]))
    generates(scripted, answered("x"))
    assert against("run", "hi").exit_code == 0
    assert scripted.requests("Generate")[0].request.model == "there"


def test_several_models_without_a_default_are_a_question_to_the_user(
    against: Any, scripted: Scripted
) -> None:
    models(scripted, "b", "a")
    refused = inference.InferenceResult(finish_reason=types.FINISH_REASON_REJECTED)
    refused.error.code, refused.error.reason = 3, types.ERROR_REASON_INVALID_ARGUMENT
    refused.error.field, refused.error.message = "request.model", "no model given"
    scripted.on("GenerateStream", [scheduler.GenerateStreamResponse(result=refused)])
    done = against("run", "hi", "--stream")
    assert done.exit_code == 2
    assert "there are several: a, b" in done.err
    assert "batchyard run -m a" in done.err


def test_of_several_models_the_server_has_the_default(against: Any, scripted: Scripted) -> None:
    models(scripted, "b", "a")
    generates(scripted, answered("x"))
    assert against("run", "hi").exit_code == 0
    assert scripted.requests("Generate")[0].request.model == ""


def test_stream_prints_text_as_it_comes(against: Any, scripted: Scripted) -> None:
    streams(scripted, "the sky ", "蓝", "!")
    done = against("run", "Why?", "-m", "small", "--stream")
    assert done.exit_code == 0, done.err
    assert done.out == "the sky 蓝!\n"


def test_stream_in_json_is_a_line_per_event_and_the_result_last(
    against: Any, scripted: Scripted
) -> None:
    streams(scripted, "a", "b")
    lines = [json.loads(line) for line in against(
        "run", "Why?", "-m", "small", "--stream", "-o", "json"
    ).lines]  # fmt: skip
    assert "".join(line["text"] for line in lines[:-1]) == "ab"
    assert lines[-1]["result"]["finish_reason"] == "stop"
    assert lines[-1]["result"]["text"] == "ab"


def test_json_has_text_and_what_happened(against: Any, scripted: Scripted) -> None:
    generates(scripted, answered("blue", degraded=True, degrade_reason="max_wait"))
    document = against("run", "Why?", "-m", "small", "-o", "json").json
    assert list(document)[:4] == ["request_id", "model", "text", "finish_reason"]
    assert document["text"] == "blue"
    assert document["degrade_reason"] == "max_wait"
    assert document["timings"]["queue_duration_ms"] == 250


def test_wide_tells_on_standard_error_what_happened(against: Any, scripted: Scripted) -> None:
    generates(scripted, answered("blue", degraded=True, degrade_reason="max_wait"))
    done = against("run", "Why?", "-m", "small", "-o", "wide")
    assert done.out == "blue\n"
    assert done.err == (
        "[small on n1 · 3 tokens · queued 250ms · took 1.5s · degraded (max_wait)]\n"
    )


def test_json_answer_is_printed_as_its_engine_wrote_it(against: Any, scripted: Scripted) -> None:
    body = '{"language": "fr", "confidence": 0.98}'
    raw = inference.RawOutput(content_type="application/json; charset=utf-8", data=body.encode())
    result = answered("", outputs=[inference.Output(raw=raw)])
    generates(scripted, result)
    scripted.on("GenerateStream", [scheduler.GenerateStreamResponse(result=result)])
    for how in ([], ["--stream"]):
        done = against("run", "La mer", "-m", "small", *how)
        assert done.exit_code == 0, done.err
        assert done.out == body + "\n"


def test_answer_that_is_no_text_has_a_line_for_people(against: Any, scripted: Scripted) -> None:
    tensor = inference.Tensor(name="scores", datatype="FP32", shape=[1, 2], data=bytes(8))
    call = types.ToolCall(id="c1", name="weather", arguments_json='{"city": "Oslo"}')
    raw = inference.RawOutput(content_type="application/octet-stream", data=b"\xff\x00")
    broken = inference.RawOutput(content_type="application/json", data=b"\xff")
    outputs = [
        inference.Output(tool_calls=[call]),
        inference.Output(embedding=[0.5, -0.25, 1, 2, 3]),
        inference.Output(embedding=[0.5]),
        inference.Output(tensors=[tensor]),
        inference.Output(raw=raw),
        inference.Output(raw=broken),
    ]
    generates(scripted, answered("", outputs=outputs))
    assert against("run", "hi", "-m", "small").lines == [
        'weather({"city": "Oslo"})',
        "vector of 5: 0.5, -0.25, 1, 2, ...",
        "vector of 1: 0.5",
        "scores: FP32 [1, 2]",
        "application/octet-stream, size 2",
        "application/json, size 1",
    ]


def test_empty_answer_is_an_empty_line(against: Any, scripted: Scripted) -> None:
    generates(scripted, answered(""))
    assert against("run", "hi", "-m", "small").out == "\n"


def test_prompt_is_read_from_standard_input(
    against: Any, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    generates(scripted, answered("x"))
    stdin = io.TextIOWrapper(io.BytesIO("总结一下\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert against("run", "-", "-m", "small").exit_code == 0
    assert scripted.requests("Generate")[0].request.text.prompt == "总结一下"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert against("run", "-", "-m", "small").exit_code == 2


@pytest.mark.parametrize(
    ("code", "reason", "exit_code", "says"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_UNREACHABLE", 4, "--timeout"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "MAX_WAIT_EXCEEDED", 4, "10 = most urgent"),
        (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", 1, "batchyard models list"),
        (grpc.StatusCode.ABORTED, "NODE_LOST", 1, "send it again"),
        (grpc.StatusCode.UNAVAILABLE, "SCHEDULER_DRAINING", 3, ""),
    ],
)
def test_refusal_has_its_exit_code_and_a_next_step(
    against: Any, scripted: Scripted, code: grpc.StatusCode, reason: str, exit_code: int, says: str
) -> None:
    scripted.on("Generate", Refusal(code, reason, "it cannot be", queueDepth="7"))
    done = against("run", "Why?", "-m", "small")
    assert done.exit_code == exit_code
    assert f"error: it cannot be ({reason})" in done.err
    assert "queueDepth 7" in done.err
    assert says in done.err
    assert done.out == ""


def test_ctrl_c_cancels_the_request_on_the_server(scripted: Scripted) -> None:
    """Behaviour: SIGINT in the middle of a stream ends the RPC, prints no traceback, exits 130."""
    streams(scripted, "begun")
    scripted.answers["GenerateStream"][-1:] = [Scripted.HANG]
    process = subprocess.Popen(
        [sys.executable, "-m", "batchyard.cli", "run", "Why?", "-m", "small", "--stream"],
        env={**os.environ, "BATCHYARD_ADDRESS": scripted.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(5) == b"begun"
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert rest == b"\n"
    assert errors.strip() == b""
    scripted.expect_cancelled("GenerateStream")
