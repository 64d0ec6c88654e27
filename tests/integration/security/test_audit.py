"""What operators do, and who they give access to, is an event and a line of the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory

from batchyard import AsyncClient, errors
from batchyard.v1 import (
    AdminServiceStub,
    CordonNodeRequest,
    ListEventsRequest,
    Policy,
    RequestFilter,
    SetLogLevelRequest,
)
from scheduler_service.audit_log import LOGGER
from scheduler_service.security import grants
from scheduler_service.security.principals import Right
from scheduler_service.security.rules import RPCS
from tests.integration.security.secured import (
    MODEL,
    Files,
    Secured,
    bearer,
    code_of,
    secured,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
REASON = "because of a new disk"
INVALID = grpc.StatusCode.INVALID_ARGUMENT
WORDY = "scheduler_service.effects"  # a logger
SERVICE = "batchyard.v1.AdminService"
# In this order: what each RPC that changes something is asked, and the event that it leaves.
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "PausePool": ({"pool": MODEL}, "pool_paused"),
    "ResumePool": ({"pool": MODEL}, "pool_resumed"),
    "FreezeAutoscale": ({"pool": MODEL}, "autoscale_frozen"),
    "UnfreezeAutoscale": ({"pool": MODEL}, "autoscale_unfrozen"),
    "SetLogLevel": ({"level": "info", "logger": WORDY}, "log_level_set"),
    "UpdatePolicy": ({"policy": Policy(yaml="queue: {headroom: 1}")}, "policy_updated"),
    "LoadModel": ({"node_id": "n1", "model": "late"}, "model_load"),
    "UnloadModel": ({"node_id": "n1", "model": "late"}, "model_unload"),
    "CordonNode": ({"node_id": "n1"}, "node_cordoned"),
    "UncordonNode": ({"node_id": "n1"}, "node_uncordoned"),
    "CancelMatching": ({"filter": RequestFilter(model=MODEL)}, "requests_cancelled"),
    "DrainNode": ({"node_id": "n1"}, "node_draining"),
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, "tls.agent_certificates=false", "autoscale.enabled=true") as world:
        join = world.files.token(kind="join")
        world.access.refresh()
        world.start_agent("n1", token=join, slots=8)
        await world.joined("n1")
        yield world


async def test_every_change_is_an_event_with_principal_and_reason(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """An RPC that changes something and is not among CHANGES fails here."""
    alice = world.files.token("alice", rights=["admin"])
    user = world.files.token("user")
    world.access.refresh()
    wanted = [
        name.rsplit("/", 1)[1]
        for name, rule in RPCS.items()
        if rule.right in (Right.OPERATE, Right.ADMIN)
    ]
    async with (
        world.channel("admin") as channel,
        AsyncClient(world.addresses.client, api_key=user, tls=world.files.ca) as client,
    ):
        stub: Any = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        how = {"metadata": bearer(alice)}
        held = asyncio.create_task(client.generate("[[stall]]", model=MODEL))
        await until(lambda: world.state.nodes["n1"].in_flight)
        methods = descriptor_pool.Default().FindServiceByName(SERVICE).methods_by_name
        for name in sorted(wanted, key=lambda n: [*CHANGES, n].index(n)):
            fields, event = CHANGES[name]
            kind = message_factory.GetMessageClass(methods[name].input_type)
            call = getattr(stub, name)
            await call(kind(**fields, reason=REASON), **how)
            listed = await stub.ListEvents(ListEventsRequest(events=[event]), **how)
            told = listed.events[0]
            assert (told.principal, told.reason) == ("alice", REASON), name
            line = audited(caplog, event)[-1]
            assert (line.principal, line.reason) == ("alice", REASON), name
        with pytest.raises(errors.Cancelled, match=f"alice: {REASON}"):
            await held
        silence = SetLogLevelRequest(level="error", logger="scheduler_service.audit_log")
        assert await code_of(stub.SetLogLevel(silence, **how)) is INVALID
        unsaid = SetLogLevelRequest(level="trace", logger=WORDY, reason="x" * 257)
        assert await code_of(stub.SetLogLevel(unsaid, **how)) is INVALID
        assert logging.getLogger(WORDY).level == logging.INFO  # what is not told is not done
        secret = CordonNodeRequest(node_id="n1", reason=f"instead of {alice}")
        assert await code_of(stub.CordonNode(secret, **how)) is INVALID
    assert alice not in caplog.text


def audited(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    """Lines of the audit log."""
    return [r for r in caplog.records if r.name == LOGGER and getattr(r, "event", "") == event]


async def access_events(world: Secured, token: str) -> list[tuple[str, str, str, str]]:
    """Event, principal, reason and what it is about of all that concern access, oldest first."""
    async with world.channel("admin") as channel:
        stub: Any = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        kinds = ["access_granted", "access_changed", "access_revoked"]
        listed = await stub.ListEvents(ListEventsRequest(events=kinds), metadata=bearer(token))
    assert token not in str(listed)
    return [(e.event, e.principal, e.reason, e.attributes["what"]) for e in reversed(listed.events)]


async def test_access_given_and_taken_is_an_event_once_also_while_no_scheduler_ran(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, state = Files(tmp_path), f"state_dir={tmp_path}/state"
    by = {"created_by": "local/ann", "created_reason": "to look"}
    reader = files.token("reader", rights=["read"], **by)
    granted = ("access_granted", "local/ann", "to look", "client reader; may read")
    async with secured(tmp_path, state, files=files) as world:
        assert await access_events(world, reader) == [granted]
        carol = files.token("carol", created_by="local/bob")
        await until(lambda: world.access.by_token(carol))
        hers = ("access_granted", "local/bob", "", "client carol; may use")
        assert await access_events(world, reader) == [granted, hers]
    with grants.changing(files.grants) as written:
        ended = written.entries[grants.id_of(carol)]
        ended.revoked, ended.revoked_by, ended.revoked_reason = 1, "local/eve", "she left"
    left = ("access_revoked", "local/eve", "she left", "client carol; may use")
    for expected in ([left], []):
        async with secured(tmp_path, state, files=files) as world:
            assert await access_events(world, reader) == expected
    [line] = audited(caplog, "access_revoked")
    assert (line.principal, line.reason) == ("local/eve", "she left")
    assert carol not in caplog.text
