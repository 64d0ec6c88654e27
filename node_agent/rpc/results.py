"""How does the end of an item read on the wire?"""

from __future__ import annotations

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from node_agent.core import Held, OutcomeKind
from node_agent.engines import interface as engines
from node_agent.rpc import durations
from node_agent.rpc.errors import error, reason_value

COMPLETE = {
    types.FINISH_REASON_STOP,
    types.FINISH_REASON_LENGTH,
    types.FINISH_REASON_TOOL_CALLS,
    types.FINISH_REASON_CONTENT_FILTER,
    types.FINISH_REASON_COMPLETE,
}

REASONS = {
    OutcomeKind.CANCELLED: types.FINISH_REASON_CANCELLED,
    OutcomeKind.EXPIRED: types.FINISH_REASON_EXPIRED,
    OutcomeKind.REFUSED: types.FINISH_REASON_ERROR,
    OutcomeKind.INVALID: types.FINISH_REASON_ERROR,
}


def is_complete(result: engines.Result) -> bool:
    """Whether the engine came to a natural end."""
    return result.finish_reason in COMPLETE and result.error is None


def item_result(held: Held, message: node.ItemResult | None = None) -> node.ItemResult:
    """The result of a finished item, without output that went out as deltas.

    What an engine answered and no message can hold makes it an ENGINE_ERROR: never a fault of the
    session, which all other items share.

    Args:
        held: the item.
        message: an empty one to write it into; None: a new one.
    """
    if message is None:
        message = node.ItemResult()
    try:
        _write(message, held)
    except (OverflowError, TypeError, ValueError) as fault:
        message.Clear()
        message.dispatch_id, message.attempt = held.item.dispatch_id, held.item.attempt
        message.finish_reason = types.FINISH_REASON_ERROR
        text = f"the engine answered what no message can hold: {fault}"
        malformed = {"engineStatus": "malformed"}
        message.error.CopyFrom(error(types.ERROR_REASON_ENGINE_ERROR, text, metadata=malformed))
    return message


def _write(message: node.ItemResult, held: Held) -> None:
    outcome = held.outcome
    assert outcome is not None, "only finished items have a result"
    result = outcome.result if isinstance(outcome.result, engines.Result) else None
    item = held.item
    message.dispatch_id = item.dispatch_id
    message.attempt = item.attempt
    _write_timings(message.timings, held, result)
    if outcome.kind is not OutcomeKind.ENGINE:
        message.finish_reason = REASONS[outcome.kind]
        message.refused = outcome.kind is OutcomeKind.REFUSED
        reason = reason_value(outcome.reason)
        message.error.CopyFrom(error(reason, outcome.message, field=outcome.field))
    elif result is None:
        message.finish_reason = types.FINISH_REASON_ERROR
    else:
        message.finish_reason = result.finish_reason
        if result.error is not None or result.finish_reason not in COMPLETE:
            _add_error(message, result)
    if result is not None:
        if result.outputs:
            message.outputs.extend(result.outputs)
        complete = outcome.kind is OutcomeKind.ENGINE and is_complete(result)
        _add_usage(message.usage, result, partial=not complete)


def _add_error(message: node.ItemResult, result: engines.Result) -> None:
    if result.error is not None:
        fault = result.error
        message.error.CopyFrom(
            error(fault.reason, fault.message, field=fault.field, metadata=fault.metadata)
        )
        message.refused = fault.refused
        if result.finish_reason in COMPLETE or not result.finish_reason:
            message.finish_reason = types.FINISH_REASON_ERROR
    else:
        # The engine stopped it unasked: an error must say so.
        message.error.CopyFrom(
            error(types.ERROR_REASON_ENGINE_ERROR, "the engine stopped the item by itself")
        )


def _add_usage(usage: types.Usage, result: engines.Result, *, partial: bool) -> None:
    """Counts the engine gave; what it did not say stays absent."""
    if result.input_tokens is not None:
        usage.input_tokens = result.input_tokens
    if result.output_tokens is not None:
        usage.output_tokens = result.output_tokens
    if result.cached_input_tokens is not None:
        usage.cached_input_tokens = result.cached_input_tokens
    usage.partial = partial


def _write_timings(times: types.EngineTimings, held: Held, result: engines.Result | None) -> None:
    """The phases on this node: the engine's figures first, else the agent's own instants."""
    if held.batch_size:
        times.batch_size = held.batch_size
    received_ns, submitted_ns, running_ns = held.received_ns, held.submitted_ns, held.running_ns
    end_ns = held.finished_ns if held.finished_ns is not None else received_ns
    write_ns, write_s = durations.write_ns, durations.write_s
    write_ns(times.total, end_ns - received_ns)
    if submitted_ns is None:
        times.local_queue.CopyFrom(times.total)
        return
    write_ns(times.local_queue, submitted_ns - received_ns)
    if result is not None and result.engine_queue_s is not None:
        write_s(times.engine_queue, result.engine_queue_s)
    elif running_ns is not None:
        write_ns(times.engine_queue, running_ns - submitted_ns)
    if result is not None and result.prefill_s is not None:
        write_s(times.prefill, result.prefill_s)
    elif running_ns is not None and held.first_output_ns is not None:
        write_ns(times.prefill, held.first_output_ns - running_ns)
    if result is not None and result.decode_s is not None:
        write_s(times.decode, result.decode_s)
    elif held.first_output_ns is not None:
        write_ns(times.decode, end_ns - held.first_output_ns)


def too_large(held: Held, size: int, limit: int) -> node.ItemResult:
    """What is sent in place of a result that no message can carry. It would be as large on every
    node, so it is no fault of this one, and is not tried again.
    """
    message = item_result(held)
    del message.outputs[:]
    message.finish_reason = types.FINISH_REASON_ERROR
    message.refused = False
    text = f"the result has {size} bytes, above the {limit} that a message may have: ask for less"
    message.error.CopyFrom(
        error(types.ERROR_REASON_REQUEST_TOO_LARGE, text, metadata={"limitBytes": str(limit)})
    )
    return message
