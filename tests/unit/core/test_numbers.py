"""The core's enums have the protocol's numbers, so that the edge passes them on without a table."""

from __future__ import annotations

from enum import IntEnum

import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, report_pb2, types_pb2
from scheduler_service.core import outcomes

PAIRS = [
    (outcomes.Reason, types_pb2.ErrorReason, "ERROR_REASON_"),
    (outcomes.RequestClass, types_pb2.RequestClass, "REQUEST_CLASS_"),
    (outcomes.AttemptState, types_pb2.AttemptState, "ATTEMPT_STATE_"),
    (outcomes.FinishReason, types_pb2.FinishReason, "FINISH_REASON_"),
    (outcomes.NodeHealth, report_pb2.NodeHealth, "NODE_HEALTH_"),
    (outcomes.NodeAvailability, report_pb2.NodeAvailability, "NODE_AVAILABILITY_"),
    (outcomes.RequestState, report_pb2.RequestState, "REQUEST_STATE_"),
    (outcomes.EngineMode, node_service_pb2.EngineMode, "ENGINE_MODE_"),
    (outcomes.ResumeMode, inference_pb2.ResumeMode, "RESUME_MODE_"),
]
UNSPECIFIED = {"NONE", "DEFAULT"}


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"), PAIRS, ids=lambda v: getattr(v, "__name__", "")
)
def test_numbers_are_the_protocols(ours: type[IntEnum], theirs: object, prefix: str) -> None:
    numbers = {name.removeprefix(prefix): n for name, n in theirs.items()}  # type: ignore[attr-defined]
    for member in ours:
        if member.name in UNSPECIFIED and member == 0:
            assert numbers["UNSPECIFIED"] == 0
        else:
            assert numbers[member.name] == member, member


def test_every_reason_of_the_protocol_has_its_name_here() -> None:
    known = {reason.value for reason in outcomes.Reason}
    assert known == set(types_pb2.ErrorReason.values())
