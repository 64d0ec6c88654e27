"""How are trace contexts read and written? As W3C text, without the SDK's propagators."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

_LENGTH: Final = 55  # 00-<32>-<16>-<2>
_ODD: Final = frozenset("13579bdfBDF")


def says_sampled(traceparent: str) -> bool:
    """Whether its flags say so; nothing else of it is looked at."""
    return len(traceparent) >= _LENGTH and traceparent[_LENGTH - 1] in _ODD


def parse(traceparent: str) -> SpanContext | None:
    """The context that a traceparent names; None where it is none."""
    parts = traceparent.split("-")
    if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        context = SpanContext(
            int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None


def written(context: SpanContext) -> str:
    """As a traceparent."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def under(parent: SpanContext | None) -> Any:
    """A context whose current span is `parent`, or nobody."""
    span = NonRecordingSpan(parent) if parent is not None else trace.INVALID_SPAN
    return trace.set_span_in_context(span)


def links_to(*contexts: SpanContext | None) -> list[Link]:
    """To those that there are."""
    return [Link(context) for context in contexts if context is not None]
