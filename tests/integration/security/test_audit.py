"""What operators do is an event with name and reason; who came and went is in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory

from batchyard import AsyncClient, errors
from batchyard.v1 import AdminServiceStub, ListEventsRequest, RequestFilter
from scheduler_service.rpc.admin import UNBUILT
from scheduler_service.security.principals import Right
from scheduler_service.security.rules import RPCS
from tests.integration.security.secured import MODEL, Secured, bearer, secured, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
REASON = "because of a new disk"
SERVICE = "batchyard.v1.AdminService"
# In this order: what each RPC that changes something is asked, and the event that it leaves.
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "PausePool": ({"pool": MODEL}, "pool_paused"),
    "ResumePool": ({"pool": MODEL}, "pool_resumed"),
    "FreezeAutoscale": ({"pool": MODEL}, "autoscale_frozen"),
    "UnfreezeAutoscale": ({"pool": MODEL}, "autoscale_unfrozen"),
    "SetLogLevel": ({"level": "info", "logger": "scheduler_service.effects"}, "log_level_set"),
    "CordonNode": ({"node_id": "n1"}, "node_cordoned"),
    "UncordonNode": ({"node_id": "n1"}, "node_uncordoned"),
    "CancelMatching": ({"filter": RequestFilter(model=MODEL)}, "cancelled"),
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


async def test_every_change_is_an_event_with_principal_and_reason(world: Secured) -> None:
    """An RPC that changes something and is not among CHANGES fails here, unless it is not built."""
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
            fields, event = CHANGES.get(name, ({}, ""))
            kind = message_factory.GetMessageClass(methods[name].input_type)
            call = getattr(stub, name)
            if not event:  # nothing that is built may be missing above
                assert name in UNBUILT, name
                continue
            await call(kind(**fields, reason=REASON), **how)
            listed = await stub.ListEvents(ListEventsRequest(events=[event]), **how)
            told = str(listed.events[0])
            assert "alice" in told, name
            assert REASON in told, name
        with pytest.raises(errors.Cancelled, match="alice"):
            await held


async def test_grants_that_come_and_go_are_in_the_log(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    token = world.files.token("carol")
    world.access.refresh()
    world.files.revoke(token)
    world.access.refresh()
    events = {getattr(r, "event", ""): r.getMessage() for r in caplog.records}
    assert "carol" in events["access_granted"]
    assert "carol" in events["access_ended"]
    assert token not in caplog.text
