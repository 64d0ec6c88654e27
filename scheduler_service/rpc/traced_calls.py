"""Which spans do calls have that become no request: refused ones, and those that create jobs?

Only where the caller is traced: a call by itself is no reason for a trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from batchyard.v1 import types_pb2
from scheduler_service.rpc.intake import Context, tracing_of
from scheduler_service.rpc.validate import Refused


class CallTrace(Protocol):
    """The span of one call, which has begun."""

    traceparent: str

    def end(self, error: types_pb2.Error | None) -> None:
        """It is over. `error`: that it is answered with; None: it went well."""


# By method, trace context of the metadata, and peer. None: its caller is not traced.
BeginCall = Callable[[str, tuple[str, str], str], CallTrace | None]


def untraced(method: str, tracing: tuple[str, str], peer: str) -> None:
    """Nothing is traced."""
    del method, tracing, peer


@contextlib.contextmanager
def traced(begin: BeginCall, method: str, context: Context) -> Iterator[str]:
    """A call with a span of its own; gives the traceparent for what it starts, empty: none."""
    tracing = tracing_of(context)
    call = begin(method, tracing, context.peer() or "")
    if call is None:
        yield tracing[0]
        return
    error: types_pb2.Error | None = _BROKEN
    try:
        yield call.traceparent
        error = None
    except Refused as refused:
        error = refused.error
        raise
    finally:
        call.end(error)


def note_refused(begin: BeginCall, method: str, context: Context, error: types_pb2.Error) -> None:
    """A call was refused before it became a request."""
    call = begin(method, tracing_of(context), context.peer() or "")
    if call is not None:
        call.end(error)


_BROKEN: Final = types_pb2.Error(code=1, reason=types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)
