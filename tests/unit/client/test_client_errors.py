"""Every failure that the wire can tell has one typed error."""

from __future__ import annotations

import pickle

import grpc
import pytest
from google.protobuf.any_pb2 import Any as ProtoAny
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from batchyard import errors
from batchyard.status import from_error, from_result, from_rpc_error
from batchyard.v1 import Attempt, Error, ErrorReason, InferenceResult, Output


def rpc_error(
    code: grpc.StatusCode, details: str = "", trailers: tuple[tuple[str, object], ...] = ()
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        code,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(*trailers),  # type: ignore[arg-type]
        details,
    )


def packed_status(code: int, *details: object) -> bytes:
    status = status_pb2.Status(code=code, message="no room")
    for detail in details:
        packed = ProtoAny()
        packed.Pack(detail)  # type: ignore[arg-type]
        status.details.append(packed)
    return status.SerializeToString()


@pytest.mark.parametrize("number", [n for n in ErrorReason.values() if n])
def test_every_reason_has_a_class(number: int) -> None:
    name = ErrorReason.Name(number).removeprefix("ERROR_REASON_")
    assert name in errors.REASONS
    error = from_error(Error(code=13, reason=number, message="m"))  # type: ignore[arg-type]
    assert type(error) is errors.REASONS[name]
    assert (error.reason, error.code, error.message) == (name, "INTERNAL", "m")


def test_the_table_names_no_reason_that_does_not_exist() -> None:
    known = {name.removeprefix("ERROR_REASON_") for name in ErrorReason.keys()}  # noqa: SIM118 - an enum wrapper, no dict
    assert set(errors.REASONS) <= known


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name != "OK"])
def test_unknown_reasons_fall_back_by_code(code: grpc.StatusCode) -> None:
    error = from_error(Error(code=code.value[0], reason=999, message="m"))  # type: ignore[arg-type]
    assert type(error) is errors.CODES[code.name]
    assert error.reason == "UNKNOWN_999"
    assert error.code == code.name


def test_code_defaults_agree_with_the_code_table() -> None:
    for code, kind in errors.CODES.items():
        assert kind.default_code in (code, "INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL")


def test_a_streamed_error_carries_everything() -> None:
    result = InferenceResult(
        request_id="r",
        trace_id="t" * 32,
        finish_reason=8,  # type: ignore[arg-type]
        error=Error(
            code=10,
            reason=ErrorReason.ERROR_REASON_STREAM_INTERRUPTED,
            message="cut",
            retryable=True,
            metadata={"emittedBytes": "3"},
        ),
        outputs=[Output(text="abc")],
        attempts=[
            Attempt(number=1, node_id="n1", state=5, error=Error(reason=40))  # type: ignore[arg-type]
        ],
    )
    error = from_result(result)
    assert isinstance(error, errors.StreamInterrupted)
    assert (error.partial_text, error.request_id, error.trace_id) == ("abc", "r", "t" * 32)
    assert error.metadata == {"emittedBytes": "3"}
    assert error.retryable
    assert error.retry_after is None
    (attempt,) = error.attempts
    assert (attempt.node_id, attempt.state, attempt.error) == ("n1", "lost", "NODE_LOST")


def test_retry_after_zero_differs_from_absent() -> None:
    assert from_error(Error(code=14, retry_after=Duration())).retry_after == 0.0
    assert from_error(Error(code=14)).retry_after is None


def test_field_is_named_as_the_caller_knows_it_whatever_it_shared_a_message_with() -> None:
    for field in ("calls[17].request.priority", "request.priority"):
        assert from_error(Error(code=3, field=field)).field == "request.priority"


def test_rich_status_is_read_from_the_trailer() -> None:
    trailer = packed_status(
        8,
        error_details_pb2.ErrorInfo(
            reason="QUEUE_FULL", domain="batchyard.dev", metadata={"queueDepth": "9"}
        ),
        error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)),
    )
    error = from_rpc_error(
        rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "x", (("grpc-status-details-bin", trailer),))
    )
    assert isinstance(error, errors.Overloaded)
    assert (error.reason, error.code) == ("QUEUE_FULL", "RESOURCE_EXHAUSTED")
    assert (error.retry_after, error.retryable) == (1.5, True)
    assert error.metadata == {"queueDepth": "9"}
    assert error.message == "no room"


def test_field_comes_from_bad_request() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="request.priority")
    trailer = packed_status(
        3,
        error_details_pb2.ErrorInfo(reason="INVALID_ARGUMENT"),
        error_details_pb2.BadRequest(field_violations=[violation]),
    )
    error = from_rpc_error(
        rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "x", (("grpc-status-details-bin", trailer),))
    )
    assert isinstance(error, errors.InvalidRequest)
    assert error.field == "request.priority"
    assert str(error) == "request.priority: no room (INVALID_ARGUMENT)"


def test_result_detail_of_a_unary_failure_brings_the_attempts() -> None:
    result = InferenceResult(
        request_id="r",
        finish_reason=8,  # type: ignore[arg-type]
        error=Error(code=10, reason=ErrorReason.ERROR_REASON_ATTEMPTS_EXHAUSTED, message="m"),
        attempts=[Attempt(number=1), Attempt(number=2)],
    )
    info = error_details_pb2.ErrorInfo(reason="ATTEMPTS_EXHAUSTED")
    trailers = (
        ("grpc-status-details-bin", packed_status(10, info, result)),
        ("grpc-retry-pushback-ms", "-1"),
    )
    error = from_rpc_error(rpc_error(grpc.StatusCode.ABORTED, "x", trailers))
    assert isinstance(error, errors.AttemptsExhausted)
    assert len(error.attempts) == 2
    assert error.request_id == "r"
    assert error.retry_after is None


def test_push_back_stands_in_for_retry_info() -> None:
    info = error_details_pb2.ErrorInfo(reason="NO_CAPACITY")
    for value, seconds in (("250", 0.25), ("-1", None), ("soon", None)):
        trailers = (
            ("grpc-status-details-bin", packed_status(14, info)),
            ("grpc-retry-pushback-ms", value),
        )
        error = from_rpc_error(rpc_error(grpc.StatusCode.UNAVAILABLE, "x", trailers))
        assert error.retry_after == seconds


def test_details_that_are_no_status_fall_back_to_the_code() -> None:
    trailers = (("grpc-status-details-bin", b"\xff\xff"),)
    error = from_rpc_error(rpc_error(grpc.StatusCode.NOT_FOUND, "gone", trailers))
    assert type(error) is errors.NotFound
    assert error.message == "gone"


def test_a_missing_server_is_named() -> None:
    error = from_rpc_error(
        rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"), peer="127.0.0.1:1"
    )
    assert isinstance(error, errors.Unavailable)
    assert "127.0.0.1:1" in str(error)
    assert error.reason == ""


def test_errors_survive_pickling() -> None:
    error = errors.Overloaded("full", reason="QUEUE_FULL", retry_after=2.0, request_id="r")
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is errors.Overloaded
    assert (twin.message, twin.reason, twin.retry_after) == ("full", "QUEUE_FULL", 2.0)


def test_every_class_is_exported_and_explains_itself() -> None:
    for kind in {*errors.REASONS.values(), *errors.CODES.values()}:
        assert kind.__name__ in errors.__all__
        assert issubclass(kind, errors.BatchyardError)
        assert kind().message  # the docstring's first line
