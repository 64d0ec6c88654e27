"""What does a gRPC status of an inference server mean: whose fault is it, and what of it?"""

from __future__ import annotations

import re

from batchyard.v1 import types_pb2
from node_agent.engines.faults import busy, denied, unavailable
from node_agent.engines.interface import EngineError

_FULL = re.compile(  # the last one: it waited there for as long as it might
    r"queue|exceeds? maximum|too many|overload|timeout expired", re.IGNORECASE
)
_CALLERS = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"})
_DENIED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_RESTRICTED = "protocol is restricted"  # Triton's word for what it lets only some do
_UNSENT = "Internal error from Core"  # gRPC, of a call that ended before it could be sent


def is_denial(code: str, details: str) -> bool:
    """Whether the server, or a gate before it, does not let this in; or it may be so, for it ended
    the call before it took the request, and gRPC has lost the words.
    """
    unsent = code == "INTERNAL" and details == _UNSENT
    return unsent or code in _DENIED or (code == "UNAVAILABLE" and _RESTRICTED in details)


def from_status(code: str, details: str) -> EngineError:
    """Return the error that a status stands for."""
    text = f"the server answered {code}: {details[:500]}"
    if code in _CALLERS:
        return EngineError(
            reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT, message=details[:500], field="request"
        )
    if code == "INTERNAL" and details == _UNSENT:
        return unavailable("the server ended the call before it took the request", refused=True)
    if is_denial(code, details):
        return denied(f"the server answered {code}", details[:500])
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
