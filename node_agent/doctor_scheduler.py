"""Does the scheduler let this host in? Asked on its node port as an agent does, without joining."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Final

import grpc

from node_agent import clock
from node_agent.config import AgentConfig, SchedulerSection
from node_agent.rpc.dial import Dialer, DialError
from node_agent.rpc.settings import MAX_MESSAGE_BYTES
from service_kit import greeting
from service_kit.doctor import Finding, found
from service_kit.version import package_version

DIAL_S = 5.0
OFFSET_S = 0.5  # of clocks, from which on times of traces and events mislead
_FILES: Final = "mend that file, or the path to it in `scheduler`"
_NODE_PORT: Final = "its node port, 7612 by default"
_JOIN: Final = "an agent needs a join token of its own (`batchyard tokens join`), or a certificate"
_AUTHORITY: Final = "set scheduler.tls.authority to the authority of its certificate: its ca.pem"
_NO_ANSWER: Final = {  # what gRPC says of it, and what to do about that
    "WRONG_VERSION_NUMBER": "nothing is encrypted there: leave scheduler.tls out",
    "CERTIFICATE_VERIFY_FAILED": _AUTHORITY,
    "Hostname Verification": "set scheduler.tls.server_name to a name that its certificate has",
    "hostname lookup": "there is no such host: correct scheduler.address",
    "Connection refused": f"start it, or correct scheduler.address: {_NODE_PORT}",
}


async def scheduler_findings(config: AgentConfig, node_id: str) -> list[Finding]:
    """Whether the scheduler's node port lets us in, and what it says before anybody joins."""
    address = config.scheduler.address
    began = time.monotonic()
    try:
        dialer = Dialer(config.scheduler)
        node_id = dialer.node_id or node_id  # a certificate's identity wins
        async with dialer.stream(address, ((greeting.ASKED_ID, node_id),)) as call:
            async with asyncio.timeout(DIAL_S):
                told = dict(await call.initial_metadata() or ())
                if greeting.VERSION not in told:
                    code, details = await call.code(), await call.details()
                    fix = _remedy(code, details or "", config.scheduler)
                    return [found("scheduler", False, f"{address}: {code.name}: {details}", fix)]
    except DialError as fault:
        return [found("scheduler", False, f"{address}: {fault}", _FILES)]
    except TimeoutError:
        fix = f"is it up, is that {_NODE_PORT}, and no older than this agent?"
        return [found("scheduler", False, f"{address}: no answer within {DIAL_S:g} s", fix)]
    return list(_greeted(address, node_id, told, time.monotonic() - began))


def _remedy(code: grpc.StatusCode, details: str, settings: SchedulerSection) -> str:
    """What to do where it lets nobody in, or is not there."""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        if settings.token_file is not None:
            new = "write a new one there: `batchyard tokens join` on its host"
            return f"it does not know the token in {settings.token_file}, or not any more; {new}"
        if settings.tls.certificate is not None:
            return "give this agent a certificate of its authority: `batchyard certs node` there"
        return "set scheduler.token_file (`batchyard tokens join`), or scheduler.tls.certificate"
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return _JOIN
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"correct scheduler.address: {_NODE_PORT}"
    known = (remedy for words, remedy in _NO_ANSWER.items() if words in details)
    encrypted = "" if settings.tls.is_on else " If it is encrypted, set scheduler.tls.authority."
    return next(known, f"is it up, and is that {_NODE_PORT}?{encrypted}")


def _greeted(
    address: str, node_id: str, told: Mapping[str, str], took_s: float
) -> Iterator[Finding]:
    """What the scheduler says of itself, and what that means for this agent."""
    yield found("scheduler", True, f"{address} answers in {took_s * 1e3:.0f} ms")
    theirs, ours = told.get(greeting.VERSION, "?"), package_version()
    same = theirs == ours
    fix = "" if same else "use the same version of both"
    yield found("version", True if same else None, f"scheduler {theirs}, agent {ours}", fix)
    refused = told.get(greeting.REFUSED, "")
    if refused:
        yield found("name", False, f"{node_id} would be turned away: {refused}", _JOIN)
    holder = told.get(greeting.HELD_BY, "")
    if holder:
        fix = "fine if that is this host's own agent; else give this one its own: node_id"
        yield found("name", None, f"{node_id} is connected, from {holder}", fix)
    elif not refused:
        yield found("name", True, f"{node_id}; no connected agent has it")
    yield _clock(told, took_s)
    limit = int(told.get(greeting.MESSAGE_BYTES, 0))
    fits = limit <= MAX_MESSAGE_BYTES
    says = f"up to {limit >> 20} MiB by the scheduler, {MAX_MESSAGE_BYTES >> 20} MiB by the agent"
    fix = "" if fits else "set limits.max_message_bytes of the scheduler to what agents take"
    yield found("messages", fits, says, fix)


def _clock(told: Mapping[str, str], took_s: float) -> Finding:
    """Both clocks, as far as the way there lets them be compared."""
    here = clock.timestamp().ToNanoseconds() / 1e9 - took_s / 2
    offset_s = here - int(told.get(greeting.TIME_NS, 0)) / 1e9
    close = abs(offset_s) < OFFSET_S + took_s / 2
    fix = "" if close else "let NTP set both clocks: times of traces and events mislead"
    return found("clock", close or None, f"{offset_s:+.3f} s from the scheduler's", fix)
