"""One request at the edge: its callers, what they have been sent, and their one end."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.commands import AcceptRequest, FinishRequest
from scheduler_service.core.outcomes import EngineMode, Outcome, Reason
from scheduler_service.core.relay import Output
from scheduler_service.core.types import (
    SECOND,
    Attempt,
    Batch,
    Engine,
    EngineSpec,
    Node,
    NodeSpec,
    Request,
)
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.results import RESERVED_BYTES, ResultBuilder
from scheduler_service.rpc.validate import Refused
from tests.unit.scheduler.small_world import EPOCH_NS, HandClock

NOW = 1_000 * SECOND
ENGINE = Engine(
    Node("n1", "boot", 1, NodeSpec(()), 0, 0), EngineSpec("e1", EngineMode.CONTINUOUS, 8), {}
)


class Caller:
    """Writes down what it is told; `leaves` in the midst of it."""

    def __init__(self, streams: bool = True) -> None:
        self.streams = streams
        self.got: list[tuple[str, Any]] = []
        self.leaves: Entry | None = None

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        self.got.append(("accepted", message))

    def started(self, message: scheduler_service_pb2.Started) -> None:
        self.got.append(("started", message))

    def delta(self, *row: Any) -> None:
        self.got.append(("delta", row))
        if self.leaves is not None:
            self.leaves.leave(self)

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        self.got.append(("extra", extra))

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        self.got.append(("result", inference_pb2.InferenceResult.FromString(result)))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.got]

    def last(self, kind: str) -> Any:
        return [value for name, value in self.got if name == kind][-1]


def entry_with(*callers: Caller, **fields: Any) -> Entry:
    request = Request(1, "r1", "m", 5, NOW - SECOND, **fields)
    request.served_model = "m"
    entry = Entry(request, b"", HandClock())
    entry.callers = (*entry.callers, *callers)
    return entry


def attempt_of(entry: Entry, number: int = 1, output_id: int = 70) -> Attempt:
    """A live attempt that may speak."""
    request = entry.request
    batch = Batch("b1", ENGINE, "m", False, "credit", NOW)
    attempt = Attempt(100 + number, number, request, ENGINE, "m", batch, 1, NOW)
    attempt.output_id = output_id
    batch.attempts.append(attempt)
    request.attempts = (*request.attempts, attempt)
    request.live = {attempt.dispatch_id: attempt}
    if request.output is None or request.output.output_id != output_id:
        request.output = Output(output_id, entry)
    request.output.speaker = attempt.dispatch_id
    return attempt


def finish(
    entry: Entry, outcome: Outcome = Outcome.SUCCEEDED, payload: Any = None, **fields: Any
) -> inference_pb2.InferenceResult:
    payload = payload or wire_pb2.PackedItemResult(finish_reason=types_pb2.FINISH_REASON_STOP)
    entry.request.finished_at = NOW + SECOND
    command = FinishRequest(entry.request, outcome, payload=payload, **fields)
    whole = entry.end(command, ResultBuilder(HandClock()))
    return inference_pb2.InferenceResult.FromString(whole)


def tool_call(offset: int = 0, channel: int = 16) -> types_pb2.DeltaExtra:
    return types_pb2.DeltaExtra(
        id=101, channel=channel, offset=offset, tool_call=types_pb2.ToolCall(id="c", name="f")
    )


# Results.


def test_result_that_no_message_holds_is_an_error_for_who_has_not_had_it_as_deltas() -> None:
    """Writing it would end the stream of its neighbours; stored, all results behind it are lost."""
    streaming, waiting = Caller(), Caller(streams=False)
    entry = entry_with(streaming, waiting)
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "x" * 200, 1, ())
    command = FinishRequest(
        entry.request,
        Outcome.SUCCEEDED,
        payload=wire_pb2.PackedItemResult(finish_reason=types_pb2.FINISH_REASON_STOP),
    )
    most = RESERVED_BYTES + 150
    kept = entry.end(command, ResultBuilder(HandClock(), max_message_bytes=most))
    whole = waiting.last("result")
    assert not streaming.last("result").HasField("error")
    assert whole.error.reason == types_pb2.ERROR_REASON_REQUEST_TOO_LARGE
    assert "bytes, above the 150" in whole.error.message
    assert inference_pb2.InferenceResult.FromString(kept) == whole, "no replay brings it, either"


# Telling.


def test_only_streaming_callers_hear_what_happens_before_the_end() -> None:
    streaming, waiting = Caller(), Caller(streams=False)
    entry = entry_with(streaming, waiting)
    entry.accept(AcceptRequest(entry.request, 3, 2 * SECOND))
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "hi", 1, ())
    entry.deliver_extra(tool_call())
    finish(entry)
    assert streaming.kinds() == ["accepted", "started", "delta", "extra", "result"]
    assert waiting.kinds() == ["result"]
    accepted = streaming.last("accepted")
    assert (accepted.request_id, accepted.queue_position) == ("r1", 3)
    assert accepted.estimated_wait.seconds == 2
    assert accepted.receive_time.ToNanoseconds() == EPOCH_NS + NOW - SECOND


def test_each_attempt_is_announced_once_and_by_who_speaks() -> None:
    caller = Caller()
    entry = entry_with(caller)
    first = attempt_of(entry)
    entry.begin(first)
    entry.begin(first)
    entry.deliver(0, 0, 0, "a", 1, ())
    attempt_of(entry, 2)
    entry.deliver(0, 0, 1, "b", 1, ())
    starts = [value for kind, value in caller.got if kind == "started"]
    assert [(s.attempt, s.node_id, s.restarted) for s in starts] == [(1, "n1", 0), (2, "n1", 0)]
    assert caller.kinds() == ["started", "delta", "started", "delta"]


def test_new_output_voids_the_old_one() -> None:
    caller, late = Caller(), Caller()
    entry = entry_with(caller)
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "old", 1, ())
    entry.deliver_extra(tool_call())
    entry.begin(attempt_of(entry, 2, output_id=71))
    assert caller.last("started").restarted
    entry.deliver(0, 0, 0, "new", 1, ())
    assert entry.delivered_text(0) == "new"
    entry.attach(late, None)
    assert [row[3] for kind, row in late.got if kind == "delta"] == ["new"]
    assert "extra" not in late.kinds()


def test_caller_that_leaves_while_told_does_not_cost_the_next_its_part() -> None:
    leaver, stayer = Caller(), Caller()
    entry = entry_with(leaver, stayer)
    leaver.leaves = entry
    attempt_of(entry)
    entry.deliver(0, 0, 0, "a", 1, ())
    entry.deliver(0, 0, 1, "b", 1, ())
    assert leaver.kinds().count("delta") == 1
    assert stayer.kinds().count("delta") == 2


def test_extra_rows_do_not_keep_their_message_alive_and_totals_are_not_kept() -> None:
    caller, late = Caller(), Caller()
    entry = entry_with(caller)
    entry.begin(attempt_of(entry))
    message = types_pb2.TokenDeltas()
    message.extras.append(tool_call())
    message.extras.add(id=101).usage.output_tokens = 5
    for extra in message.extras:
        entry.deliver_extra(extra)
    assert len(entry.extras) == 1
    assert entry.extras[0] is not message.extras[0]
    entry.attach(late, None)
    assert late.kinds() == ["accepted", "started", "extra"]


# Joining.


def test_late_caller_gets_what_it_lacks_channel_by_channel() -> None:
    entry = entry_with(Caller())
    attempt = attempt_of(entry)
    entry.begin(attempt)
    entry.deliver(0, 0, 0, "grüß", 1, ())
    entry.deliver(0, 1, 0, "why", 1, ())
    entry.deliver(0, 0, 6, " dich", 2, ())
    entry.deliver_extra(tool_call())
    entry.deliver(0, 16, 0, "{}", 0, ())
    point = scheduler_service_pb2.AttachPoint(
        output_id=70, offsets=[{"offset": 6}, {"channel": 16, "offset": 1}]
    )
    late = Caller()
    entry.attach(late, point)
    assert late.last("accepted").attached
    assert not late.last("started").restarted
    rows = [row[:4] for kind, row in late.got if kind == "delta"]
    assert rows == [(0, 0, 6, " dich"), (0, 1, 0, "why"), (0, 16, 1, "}")]
    assert "extra" not in late.kinds(), "it has the head of that call"
    entry.deliver(0, 0, 11, "!", 1, ())
    assert late.last("delta")[2:4] == (11, "!")


@pytest.mark.parametrize(
    "offset",
    [
        {"offset": 3},  # inside of a code point
        {"offset": 7},
        {"offset": 1, "channel": 1},
        {"offset": 1, "choice_index": 2},
    ],
)
def test_point_that_never_was_is_refused_and_nobody_joins(offset: dict[str, int]) -> None:
    entry = entry_with(Caller())
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "grüß", 1, ())
    point = scheduler_service_pb2.AttachPoint(output_id=70, offsets=[{"offset": 0}, offset])
    late = Caller()
    with pytest.raises(Refused) as caught:
        entry.attach(late, point)
    assert caught.value.error.field == "attach.offsets[1].offset"
    assert late not in entry.callers
    assert late.got == []


def test_who_had_more_of_a_returned_output_gets_all_of_the_next_one() -> None:
    """The node of adopted work is lost before its text has come again."""
    ahead = Caller()
    entry = entry_with(ahead)
    entry.expect(ahead, scheduler_service_pb2.AttachPoint(output_id=70, offsets=[{"offset": 4}]))
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "ab", 1, ())
    assert "delta" not in ahead.kinds(), "it has these"
    entry.begin(attempt_of(entry, output_id=71))
    assert ahead.last("started").restarted
    entry.deliver(0, 0, 0, "xyz", 1, ())
    assert ahead.last("delta")[2:4] == (0, "xyz")


def test_token_ids_belong_to_their_choice_and_delta() -> None:
    waiting = Caller(streams=False)
    entry = entry_with(Caller(), waiting)
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "ab", 2, [1, 2])
    entry.deliver(1, 0, 0, "cd", 1, [9])
    entry.deliver(0, 0, 2, "ef", 1, [3])
    assert entry.delivered_token_ids() == [1, 2, 3]
    late = Caller()
    entry.attach(late, scheduler_service_pb2.AttachPoint(output_id=70, offsets=[{"offset": 2}]))
    rows = [row for kind, row in late.got if kind == "delta"]
    assert rows == [(0, 0, 2, "ef", 0, [3]), (1, 0, 0, "cd", 0, [9])]
    finish(entry)
    outputs = waiting.last("result").outputs
    assert [list(output.token_ids) for output in outputs] == [[1, 2, 3], [9]]


# The end.


def test_who_streamed_gets_the_end_and_who_did_not_gets_all() -> None:
    streaming, waiting = Caller(), Caller(streams=False)
    entry = entry_with(streaming, waiting)
    entry.labels = {"team": "a"}
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "text", 4, ())
    entry.deliver(0, 1, 0, "thought", 1, ())
    entry.deliver(0, 17, 0, "{}", 1, ())
    whole = finish(entry)
    assert not streaming.last("result").outputs
    (output,) = waiting.last("result").outputs
    assert (output.text, output.reasoning) == ("text", "thought")
    assert [(call.index, call.arguments_json) for call in output.tool_calls] == [(1, "{}")]
    assert output.finish_reason == types_pb2.FINISH_REASON_STOP
    assert whole == waiting.last("result")
    assert dict(whole.labels) == dict(streaming.last("result").labels) == {"team": "a"}
    assert entry.callers == ()


@pytest.mark.parametrize("again", [False, True], ids=["went on", "began anew"])
def test_text_of_attempts_before_is_kept_where_the_last_one_added_none(again: bool) -> None:
    """Behaviour 56: it goes on from what the first has written, which was all of it."""
    waiting = Caller(streams=False)
    entry = entry_with(waiting)
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "all of it", 4, ())
    attempt_of(entry, 2, output_id=71 if again else 70)
    empty = inference_pb2.Output(finish_reason=types_pb2.FINISH_REASON_STOP).SerializeToString()
    payload = wire_pb2.PackedItemResult(finish_reason=2, outputs=[empty])
    finish(entry, payload=payload)
    (output,) = waiting.last("result").outputs
    assert output.text == ("" if again else "all of it")


def test_outputs_of_the_node_are_passed_on_as_they_came() -> None:
    later = b"\x9a\xf1\x01\x05later"  # a field that this version does not know
    output = inference_pb2.Output(text="all").SerializeToString() + later
    payload = wire_pb2.PackedItemResult(finish_reason=2, outputs=[output])
    streaming = Caller()
    entry = entry_with(streaming)
    entry.request.attempts = ()
    whole = finish(entry, payload=payload)
    assert whole.outputs[0].SerializeToString() == output
    assert streaming.last("result") == whole, "nothing went as deltas"


def test_every_caller_is_told_though_one_of_them_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Caller):
        def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
            raise RuntimeError("a bug")

    callers = [Caller(), Broken(), Caller()]
    finish(entry_with(*callers))
    assert [caller.kinds() for caller in callers] == [["result"], [], ["result"]]
    assert "a bug" in caplog.text


def test_result_that_cannot_be_built_is_internal(caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller()
    entry = entry_with(caller)
    whole = finish(entry, Outcome.FAILED, metadata={"not": object()})
    assert caller.last("result") == whole
    assert whole.error.reason == types_pb2.ERROR_REASON_INTERNAL
    assert whole.finish_reason == types_pb2.FINISH_REASON_ERROR
    assert whole.request_id == "r1"
    assert "cannot be built" in caplog.text


def test_partial_output_of_a_failure_is_kept() -> None:
    waiting = Caller(streams=False)
    entry = entry_with(waiting)
    entry.begin(attempt_of(entry))
    entry.deliver(0, 0, 0, "half", 2, ())
    assert entry.request.output is not None
    entry.request.output.offsets[0] = 4
    entry.request.output.tokens = 2
    finish(entry, Outcome.FAILED, reason=Reason.STREAM_INTERRUPTED, message="why")
    result = waiting.last("result")
    assert (result.outputs[0].text, result.partial, result.usage.partial) == ("half", True, True)
    assert result.usage.output_tokens == 2
