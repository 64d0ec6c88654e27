"""A rogue agent changes no request's outcome, is disconnected, and is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient
from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from scheduler_service.security.refusals import Place
from tests.integration.security.secured import MODEL, WAIT_S, Secured, bearer, secured, until

pytestmark = pytest.mark.slow
CONNECT = "/batchyard.v1.NodeService/Connect"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    """Join tokens, and an honest node n1."""
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        token = world.files.token(kind="join")
        world.access.refresh()
        world.start_agent("n1", token=token, latency="200ms", slots=4)
        await world.joined("n1")
        yield world


class Rogue:
    """An agent that says what a test wants."""

    def __init__(self, world: Secured, metadata: Sequence[tuple[str, str]] = (), **how: Any):
        self._channel = world.channel("node", **how)
        self._call: Any = self._channel.stream_stream(CONNECT)(metadata=metadata)

    async def say(self, message: pb.ConnectRequest) -> None:
        await self._call.write(message.SerializeToString())

    async def hello(self, node_id: str, **fields: Any) -> pb.ConnectResponse:
        engine = pb.EngineDescriptor(
            engine_id="e", kind="simulated", slots=1, mode=pb.ENGINE_MODE_CONTINUOUS,
            models=[pb.ModelDescriptor(model="rogue")],
        )  # fmt: skip
        fields.setdefault("descriptor", pb.NodeDescriptor(engines=[engine]))
        hello = pb.Hello(node_id=node_id, boot_id="b", protocol_version=1, **fields)
        await self.say(pb.ConnectRequest(hello=hello))
        return await self.hear()

    async def hear(self) -> pb.ConnectResponse:
        async with asyncio.timeout(WAIT_S):
            data = await self._call.read()
        return pb.ConnectResponse.FromString(data)

    async def until_goodbye(self) -> types_pb2.Error:
        while True:
            heard = await self.hear()
            if heard.HasField("goodbye"):
                return heard.goodbye.error

    async def code(self) -> grpc.StatusCode:
        async with asyncio.timeout(WAIT_S):
            found: grpc.StatusCode = await self._call.code()
        return found

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


def reason(error: types_pb2.Error) -> str:
    return types_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")


async def test_a_join_token_admits_its_node_and_no_other(world: Secured) -> None:
    token = world.files.token(kind="join")
    world.access.refresh()
    first = Rogue(world, bearer(token))
    assert (await first.hello("n2")).HasField("welcome")
    await first.close()
    for claimed in ("n1", "n3"):  # of another node, and a new one
        rogue = Rogue(world, bearer(token))
        goodbye = (await rogue.hello(claimed)).goodbye
        assert reason(goodbye.error) == "PERMISSION_DENIED"
        assert not goodbye.HasField("reconnect_after")
        await rogue.close()
    assert world.refusals.total(Place.SESSION) == 2
    again = Rogue(world, bearer(token))
    assert (await again.hello("n2")).HasField("welcome")
    await again.close()


async def test_a_node_admitted_by_one_token_cannot_be_claimed_with_another(world: Secured) -> None:
    token = world.files.token(kind="join", uses=5)
    world.access.refresh()
    rogue = Rogue(world, bearer(token))
    assert reason((await rogue.hello("n1")).goodbye.error) == "PERMISSION_DENIED"
    await rogue.close()


async def test_a_client_token_opens_no_session(world: Secured) -> None:
    token = world.files.token("boss", rights=["use", "jobs", "admin"])
    world.access.refresh()
    rogue = Rogue(world, bearer(token))
    assert await rogue.code() is grpc.StatusCode.PERMISSION_DENIED
    await rogue.close()


async def test_who_was_admitted_outlives_a_restart(tmp_path: Path, world: Secured) -> None:
    """The node id stays bound to its token in the file."""
    other = world.files.token(kind="join")
    async with secured(tmp_path, "tls.agent_certificates=false", files=world.files) as second:
        rogue = Rogue(second, bearer(other))
        assert reason((await rogue.hello("n1")).goodbye.error) == "PERMISSION_DENIED"
        await rogue.close()


async def test_forged_results_and_output_change_no_outcome(world: Secured) -> None:
    """Results and text for the honest node's items, live at that moment, and for invented ones."""
    join, use = world.files.token(kind="join"), world.files.token()
    world.access.refresh()
    rogue = Rogue(world, bearer(join))
    assert (await rogue.hello("evil")).HasField("welcome")
    async with AsyncClient(world.addresses.client, api_key=use, tls=world.files.ca) as client:

        async def read(prompt: str) -> tuple[str, str]:
            stream = client.stream(prompt, model=MODEL)
            text = "".join([delta.text async for delta in stream])
            return text, stream.result.node_id

        waiting = [client.generate("[[tokens=5]]", model=MODEL), read("[[tokens=5]]")]
        calls = [asyncio.ensure_future(each) for each in waiting]
        await until(lambda: len(world.state.nodes["n1"].in_flight) == 2)
        live = list(world.state.nodes["n1"].in_flight)
        for dispatch_id in (*live, 1, 2**40, 2**63):
            deltas = types_pb2.TokenDeltas(
                ids=[dispatch_id], offsets=[0], texts=["EVIL"], token_counts=[1]
            )
            results = [
                pb.ItemResult(dispatch_id=dispatch_id, finish_reason=types_pb2.FINISH_REASON_ERROR)
            ]
            await rogue.say(pb.ConnectRequest(deltas=deltas, results=results))
        whole, (text, node_id) = await asyncio.gather(*calls)
    assert (whole.node_id, node_id) == ("n1", "n1")
    assert "EVIL" not in whole.text + text
    assert text
    # Two live ids and three invented ones, each with output and a result.
    await until(lambda: world.refusals.counts[Place.ITEM, "PERMISSION_DENIED"] == 10)
    await rogue.close()


async def test_a_replayed_session_gets_nothing_of_the_honest_one(world: Secured) -> None:
    """The hello of n1 with its running items, from another boot, while n1 lives."""
    use = world.files.token()
    world.access.refresh()
    join = next(iter((world.files.folder).glob("token-*"))).read_text()
    async with AsyncClient(world.addresses.client, api_key=use, tls=world.files.ca) as client:
        call = asyncio.create_task(client.generate("[[tokens=40]]", model=MODEL))
        await until(lambda: world.state.nodes["n1"].in_flight)
        running = [
            pb.RunningItem(dispatch_id=dispatch_id, attempt=1, engine_id="e", model=MODEL)
            for dispatch_id in world.state.nodes["n1"].in_flight
        ]
        rogue = Rogue(world, bearer(join))
        await rogue.say(
            pb.ConnectRequest(
                hello=pb.Hello(
                    node_id="n1", boot_id="other", protocol_version=1,
                    descriptor=pb.NodeDescriptor(engines=[pb.EngineDescriptor(
                        engine_id="e", kind="simulated", slots=1,
                        mode=pb.ENGINE_MODE_CONTINUOUS)]),
                    running_items=running,
                )
            )
        )  # fmt: skip
        error = await rogue.until_goodbye()
        assert reason(error) == "NODE_ID_IN_USE"
        assert world.refusals.counts[Place.SESSION, "NODE_ID_IN_USE"] == 1
        assert (await call).node_id == "n1"
        await rogue.close()


async def test_who_goes_on_forging_is_disconnected_and_counted(world: Secured) -> None:
    join = world.files.token(kind="join")
    world.access.refresh()
    rogue = Rogue(world, bearer(join))
    assert (await rogue.hello("evil")).HasField("welcome")
    results = [
        pb.ItemResult(dispatch_id=7_000 + n, finish_reason=types_pb2.FINISH_REASON_STOP)
        for n in range(1_001)
    ]
    await rogue.say(pb.ConnectRequest(results=results))
    assert reason(await rogue.until_goodbye()) == "PROTOCOL_VIOLATION"
    assert world.refusals.total(Place.SESSION) == 1
    await rogue.close()


async def test_a_flood_of_messages_ends_the_session(
    world: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_service.rpc.node_conduct.MESSAGES_MAX", 500)
    join = world.files.token(kind="join")
    world.access.refresh()
    rogue = Rogue(world, bearer(join))
    assert (await rogue.hello("evil")).HasField("welcome")
    with_end = asyncio.create_task(rogue.until_goodbye())
    for _ in range(600):
        if with_end.done():
            break
        await rogue.say(pb.ConnectRequest())
    assert reason(await with_end) == "PROTOCOL_VIOLATION"
    assert world.refusals.counts[Place.SESSION, "PROTOCOL_VIOLATION"] == 1
    await rogue.close()


async def test_a_revoked_join_token_ends_its_session(world: Secured) -> None:
    join = world.files.token(kind="join")
    world.access.refresh()
    rogue = Rogue(world, bearer(join))
    assert (await rogue.hello("n9")).HasField("welcome")
    world.files.revoke(join)
    assert await rogue.code() is grpc.StatusCode.UNAUTHENTICATED
    await until(lambda: not world.state.nodes["n9"].connected)
    await rogue.close()


# Certificates.


async def test_a_certificate_fixes_the_node_id(tmp_path: Path) -> None:
    """A certificate's identity wins over what the hello says."""
    async with secured(tmp_path) as world:
        world.files.issue_node("gpu-1")
        rogue = Rogue(world, certificate="node-gpu-1")
        assert (await rogue.hello("n1")).HasField("welcome")
        await until(lambda: "gpu-1" in world.state.nodes)
        assert "n1" not in world.state.nodes
        await rogue.close()


async def test_only_a_node_certificate_of_this_authority_lets_agents_in(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with secured(tmp_path) as world:
        world.files.issue_client("team")
        world.files.allow_certificate("team", rights=["use"])
        join = world.files.token(kind="join")
        world.access.refresh()
        nobody = Rogue(world, bearer(join))  # a token, and no certificate
        assert await nobody.code() is grpc.StatusCode.UNAVAILABLE  # no handshake
        client = Rogue(world, certificate="client-team")
        assert await client.code() is grpc.StatusCode.PERMISSION_DENIED
        for rogue in (nobody, client):
            await rogue.close()


async def test_a_revoked_certificate_ends_its_session_and_opens_none(tmp_path: Path) -> None:
    from scheduler_service.security import access, tokens_commands

    async with secured(tmp_path) as world:
        world.files.issue_node("gpu-1")
        rogue = Rogue(world, certificate="node-gpu-1")
        assert (await rogue.hello("gpu-1")).HasField("welcome")
        fingerprint = access.fingerprint_of(world.files.pair("node-gpu-1")[1])
        tokens_commands.revoke_certificate(world.files.grants, fingerprint)
        assert await rogue.code() is grpc.StatusCode.UNAUTHENTICATED
        epoch = world.state.nodes["gpu-1"].epoch
        again = Rogue(world, certificate="node-gpu-1")
        assert await again.code() is grpc.StatusCode.UNAUTHENTICATED
        assert world.state.nodes["gpu-1"].epoch == epoch
        assert world.refusals.counts[Place.RPC, "UNAUTHENTICATED"] == 2
        for each in (rogue, again):
            await each.close()


async def test_an_agent_takes_its_id_from_its_certificate(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        world.files.issue_node("gpu-7")
        agent = world.start_agent(certificate="node-gpu-7")
        assert agent.node_id == "gpu-7"
        await world.joined("gpu-7")
