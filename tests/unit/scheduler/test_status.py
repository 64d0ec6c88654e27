"""The one table from reasons to gRPC, and what rides in trailers."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND
from scheduler_service.rpc import status

REASONS = [reason for reason in Reason if reason is not Reason.NONE]


def test_every_reason_of_the_protocol_is_known_and_has_a_code() -> None:
    values = types_pb2.ErrorReason.DESCRIPTOR.values
    named = {value.number: value.name.removeprefix("ERROR_REASON_") for value in values}
    assert {int(reason): reason.name for reason in REASONS} == {
        number: name for number, name in named.items() if number
    }
    assert set(status.CODES) == set(REASONS)
    assert set(REASONS) >= status.RETRYABLE


def test_codes_are_those_of_the_protocols_comments() -> None:
    """UNAVAILABLE only where an immediate retry is safe; what was retried here is ABORTED."""
    by_code: dict[Any, set[str]] = {}
    for reason, code in status.CODES.items():
        by_code.setdefault(code, set()).add(reason.name)
    assert by_code[grpc.StatusCode.UNAVAILABLE] == {
        "NO_CAPACITY", "SCHEDULER_STARTING", "SCHEDULER_DRAINING", "NODE_DRAINING",
        "ENGINE_UNAVAILABLE",
    }  # fmt: skip
    assert {"NODE_LOST", "ATTEMPTS_EXHAUSTED", "RETRY_BUDGET_EXHAUSTED", "STREAM_INTERRUPTED"} <= (
        by_code[grpc.StatusCode.ABORTED]
    )
    assert by_code[grpc.StatusCode.UNIMPLEMENTED] == {"UNSUPPORTED_FEATURE"}
    assert by_code[grpc.StatusCode.INTERNAL] == {"ENGINE_ERROR", "INTERNAL"}
    assert status.CODES[Reason.POISONED] is grpc.StatusCode.FAILED_PRECONDITION
    assert status.code_number(Reason.NONE) == grpc.StatusCode.UNKNOWN.value[0]


def details(failure: types_pb2.Error, kind: Any, result: Any = None) -> list[Any]:
    found = []
    for packed in status.rich_status(failure, result).details:
        if packed.Is(kind.DESCRIPTOR):
            detail = kind()
            packed.Unpack(detail)
            found.append(detail)
    return found


@pytest.mark.parametrize("reason", REASONS)
def test_every_error_has_one_error_info_and_says_whether_to_push_back(reason: Reason) -> None:
    failure = status.error(reason, "why", metadata={"limit": "3"})
    (info,) = details(failure, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (reason.name, "batchyard.dev")
    assert dict(info.metadata) == {"limit": "3"}
    assert not details(failure, error_details_pb2.RetryInfo)
    trailers = dict(status.trailers(failure, status.rich_status(failure)))
    assert trailers["grpc-retry-pushback-ms"] == "-1"


def test_what_may_be_sent_again_says_when() -> None:
    failure = status.error(Reason.QUEUE_FULL, "full", retry_after=3 * SECOND // 2)
    (info,) = details(failure, error_details_pb2.RetryInfo)
    assert (info.retry_delay.seconds, info.retry_delay.nanos) == (1, 500_000_000)
    trailers = dict(status.trailers(failure, status.rich_status(failure)))
    assert trailers["grpc-retry-pushback-ms"] == "1500"


def test_bad_field_and_missing_thing_have_details_of_their_own() -> None:
    failure = status.error(Reason.INVALID_ARGUMENT, "no", field="request.priority")
    (bad,) = details(failure, error_details_pb2.BadRequest)
    assert [(v.field, v.description) for v in bad.field_violations] == [("request.priority", "no")]
    failure = status.error(Reason.MODEL_NOT_FOUND, "no", metadata={"model": "m"})
    (info,) = details(failure, error_details_pb2.ResourceInfo)
    assert (info.resource_type, info.resource_name) == ("model", "m")


def large_result() -> inference_pb2.InferenceResult:
    result = inference_pb2.InferenceResult(request_id="r", partial=True)
    result.outputs.add(text="x" * 100_000)
    for n in range(20):
        result.attempts.add(number=n, error=types_pb2.Error(message="e" * 500))
        result.labels[str(n)] = "v" * 200
    return result


def test_trailers_stay_below_what_peers_take() -> None:
    """A peer refuses metadata above 8 KiB: the caller would see that instead of the error."""
    small = inference_pb2.InferenceResult(request_id="r")
    small.outputs.add(text="partial")
    failure = status.error(Reason.ENGINE_ERROR, "why")
    (kept,) = [d for d in status.fitting_status(failure, small).details if d.Is(small.DESCRIPTOR)]
    assert inference_pb2.InferenceResult.FromString(kept.value) == small
    rich = status.fitting_status(failure, large_result())
    (slim,) = [d for d in rich.details if d.Is(small.DESCRIPTOR)]
    result = inference_pb2.InferenceResult.FromString(slim.value)
    assert (result.request_id, result.partial, len(result.outputs)) == ("r", True, 0)
    assert [attempt.number for attempt in result.attempts] == [19]


@pytest.mark.parametrize("text", ["x", "长"])
def test_no_words_of_others_make_trailers_too_large(text: str) -> None:
    failure = status.error(
        Reason.ENGINE_ERROR, text * 100_000, field=text * 9_000, metadata={"m": text * 50_000}
    )
    assert len(failure.message) == status.MAX_MESSAGE
    rich = status.fitting_status(failure, large_result())
    assert rich.ByteSize() <= status.MAX_DETAILS
    assert [d for d in rich.details if d.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
