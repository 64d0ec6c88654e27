"""What was decided, in one line per command? Only what is decided: no text for people.

Two cores decide alike if and only if these lines are equal. Requests are named by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler_service.core import commands as cmd


def describe(commands: Sequence[cmd.Command]) -> list[str]:
    """A line each, in order."""
    return [_WORDS[type(command)](command) for command in commands]


def _accept(command: cmd.AcceptRequest) -> str:
    return f"accept #{command.request.rid} ahead={command.ahead} wait={command.estimated_wait}"


def _dispatch(command: cmd.DispatchBatch) -> str:
    batch = command.batch
    members = " ".join(
        f"#{a.request.rid}.{a.number}={a.dispatch_id}"
        + (f"/{a.chosen_by}" if a.chosen_by != "order" else "")
        for a in batch.attempts
    )
    where = f"{command.node_id}/{batch.engine.engine_id} epoch={command.epoch}"
    return f"dispatch {batch.batch_id} {batch.model} to {where} {batch.close_reason}: {members}"


def _cancel(command: cmd.CancelAttempts) -> str:
    ids = " ".join(map(str, command.dispatch_ids))
    return f"cancel on {command.node_id} epoch={command.epoch} {command.reason.name}: {ids}"


def _start(command: cmd.StartOutput) -> str:
    return f"start #{command.request.rid} attempt={command.attempt.dispatch_id}"


def _finish(command: cmd.FinishRequest) -> str:
    by = command.attempt.dispatch_id if command.attempt is not None else "-"
    request = command.request
    model = request.served_model if request.degraded else "asked"
    return (
        f"finish #{request.rid} {command.outcome.name} {command.reason.name} attempt={by} "
        f"model={model} retry_after={command.retry_after}"
    )


def _remember(command: cmd.RememberDeaths) -> str:
    told = " ".join(f"#{request.rid}={','.join(nodes)}" for request, nodes in command.deaths)
    return f"remember deaths {told}"


def _welcome(command: cmd.WelcomeNode) -> str:
    return (
        f"welcome {command.node_id} epoch={command.epoch} abandon={command.abandon} "
        f"adopted={command.adopted}"
    )


def _close(command: cmd.CloseSession) -> str:
    again = "reconnect" if command.reconnect else "for good"
    return f"close {command.node_id} epoch={command.epoch} {command.reason.name} {again}"


def _ping(command: cmd.PingNode) -> str:
    return f"ping {command.node_id} epoch={command.epoch}"


def _acknowledge(command: cmd.AcknowledgeResults) -> str:
    return f"acknowledge {command.node_id} epoch={command.epoch} {command.count}"


def _drain(command: cmd.DrainNode) -> str:
    if command.lifted:
        return f"lift the drain of {command.node_id} epoch={command.epoch}"
    how = "terminate" if command.terminate else "keep"
    return f"drain {command.node_id} epoch={command.epoch} grace={command.grace} {how}"


def _scale(command: cmd.RequestScale) -> str:
    return f"scale {command.pool} to {command.desired} drained={command.drained}"


_WORDS: Final[dict[type, Callable[[Any], str]]] = {
    cmd.AcceptRequest: _accept,
    cmd.DispatchBatch: _dispatch,
    cmd.CancelAttempts: _cancel,
    cmd.StartOutput: _start,
    cmd.FinishRequest: _finish,
    cmd.RememberDeaths: _remember,
    cmd.WelcomeNode: _welcome,
    cmd.CloseSession: _close,
    cmd.PingNode: _ping,
    cmd.AcknowledgeResults: _acknowledge,
    cmd.DrainNode: _drain,
    cmd.RequestScale: _scale,
}
