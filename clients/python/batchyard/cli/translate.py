"""The client library's errors as texts with a next step and an exit code."""

from __future__ import annotations

from batchyard import errors
from batchyard.cli.failures import DEADLINE, FAILURE, UNREACHABLE, USAGE, CliError

_UNREACHABLE_REASONS = {"", "SCHEDULER_STARTING", "SCHEDULER_DRAINING"}
_NEXT_STEPS = {
    "CONTEXT_TOO_LONG": "shorten the prompt, or choose a model with a longer context: "
    "`batchyard models list`",
    "MODEL_NOT_FOUND": "`batchyard models list` shows what can be asked for",
    "REQUEST_ID_CONFLICT": "take another --request-id, or none",
    "NO_CAPACITY": "`batchyard nodes list` shows which nodes are there and in what state",
    "QUEUE_FULL": "`batchyard status` shows what waits; try again when it is less",
    "SHED": "`batchyard status` shows what waits; try again when it is less",
    "MAX_WAIT_EXCEEDED": "allow a longer --max-wait, a higher --priority (10 = most urgent), or "
    "another model with --degrade",
    "DEADLINE_UNREACHABLE": "allow a longer --timeout, a higher --priority (10 = most urgent), or "
    "another model with --degrade",
    "DEADLINE_EXCEEDED": "allow a longer --timeout; `batchyard requests show ID` tells where the "
    "time went",
    "NODE_LOST": "send it again; `batchyard events list --type node_lost` tells which node",
    "ATTEMPTS_EXHAUSTED": "`batchyard requests show ID` shows every attempt",
    "STREAM_INTERRUPTED": "send it again, from the start",
    "UNAUTHENTICATED": "set the key that the operator gave you in BATCHYARD_API_KEY",
    "ETAG_MISMATCH": "`batchyard policy show` prints the one in force; make the change in it again",
    "UNSUPPORTED_FEATURE": "update the scheduler, or use a client of its version",
}
_WHERE = {
    False: "it is with --address HOST:PORT (or BATCHYARD_ADDRESS)",
    True: "its admin port is with --admin-address HOST:PORT (or BATCHYARD_ADMIN_ADDRESS; else it "
    "is two above the port of --address)",
}
# Of RESOURCE_NOT_FOUND: what lists the resources of a kind.
_LISTS = {
    "job": "batchyard jobs list",
    "node": "batchyard nodes list",
    "request": "batchyard requests list",
}


def cli_error(error: errors.BatchyardError, *, address: str, admin: bool = False) -> CliError:
    """What to print for `error`, of a call to `address`: the admin port, or that for clients."""
    if isinstance(error, errors.Unavailable) and error.reason == "":
        return CliError(
            f"cannot reach the scheduler at {address}",
            why=error.message,
            next_step=f"start one here with `batchyard dev`, or say where {_WHERE[admin]}",
            exit_code=UNREACHABLE,
        )
    return CliError(
        str(error),
        why=_why(error),
        next_step=_next_step(error),
        exit_code=exit_code(error),
    )


def exit_code(error: errors.BatchyardError) -> int:
    """3 not reachable, 4 a time limit passed, else 1."""
    if isinstance(error, errors.Unavailable) and error.reason in _UNREACHABLE_REASONS:
        return UNREACHABLE
    if isinstance(error, errors.DeadlineExceeded) or error.reason == "MAX_WAIT_EXCEEDED":
        return DEADLINE
    if isinstance(error, errors.InvalidRequest) and error.reason == "":
        return USAGE
    return FAILURE


def _why(error: errors.BatchyardError) -> str:
    parts = [f"{key} {value}" for key, value in sorted(error.metadata.items())]
    for attempt in error.attempts:
        ended = f"{attempt.state} {attempt.error}".strip()
        parts.append(f"attempt {attempt.number} on {attempt.node_id}: {ended}")
    if error.request_id:
        parts.append(f"request {error.request_id}")
    return ", ".join(parts)


def _next_step(error: errors.BatchyardError) -> str:
    step = _NEXT_STEPS.get(error.reason, "")
    if isinstance(error, errors.InvalidRequest) and error.field == "tls":
        return (
            "set BATCHYARD_TLS_CA to the file with the scheduler's authority (`system`: the "
            "machine's own; `off`: the network encrypts)"
        )
    kind = error.metadata.get("resource", "").partition("/")[0].removesuffix("s")
    if error.reason == "RESOURCE_NOT_FOUND" and kind in _LISTS:
        return f"`{_LISTS[kind]}` shows those it knows"
    if error.reason == "REQUEST_ID_CONFLICT" and error.field == "job_id":
        return "take another --id, or none; `batchyard jobs show ID` shows the job that is there"
    if error.reason == "UNSUPPORTED_FEATURE" and error.field:
        return "change or leave out what it names, or update the scheduler"
    if error.request_id:
        step = step.replace("requests show ID", f"requests show {error.request_id}")
    if not step and error.retry_after is not None:
        return f"try again in {max(1, round(error.retry_after))}s"
    if not step and error.retryable:
        return "try again"
    return step
