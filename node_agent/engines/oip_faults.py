"""What does a gRPC status of an inference server mean: whose fault is it, and what of it?"""

from __future__ import annotations

import re

from batchyard.v1 import types_pb2
from node_agent.engines.faults import busy, unavailable
from node_agent.engines.interface import EngineError

_FULL = re.compile(  # the last one: it waited there for as long as it might
    r"queue|exceeds? maximum|too many|overload|timeout expired", re.IGNORECASE
)
_CALLERS = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"})


def from_status(code: str, details: str) -> EngineError:
    """Return the error that a status stands for."""
    text = f"the server answered {code}: {details[:500]}"
    if code in _CALLERS:
        return EngineError(
            reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT, message=details[:500], field="request"
        )
    if code == "NOT_FOUND":
        return EngineError(
            reason=types_pb2.ERROR_REASON_MODEL_NOT_FOUND, message=text, refused=True
        )
    if code == "RESOURCE_EXHAUSTED" or (code == "UNAVAILABLE" and _FULL.search(details)):
        return busy(text)
    if code == "UNAVAILABLE":
        return unavailable(text)
    if code == "DEADLINE_EXCEEDED":
        return EngineError(
            reason=types_pb2.ERROR_REASON_ENGINE_STALLED,
            message=text,
            metadata={"limit": "call_timeout"},
        )
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_ERROR, message=text, metadata={"engineStatus": code}
    )
