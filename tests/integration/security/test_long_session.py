"""Does a session that lasts keep anything of the messages that went through it?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from batchyard.v1 import node_service_pb2 as pb
from tests.integration.security.secured import bearer, secured
from tests.integration.security.test_rogue_agent import Rogue

pytestmark = pytest.mark.slow

WARM_UP, MESSAGES = 2_000, 8_000
KEPT_MAX = 150  # bytes a message; one that is kept takes more than that by itself


async def test_messages_of_a_long_session_are_not_kept(tmp_path: Path) -> None:
    """Behaviour 77: with authentication and tracing; here both ends are in this process."""
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        token = world.files.token(kind="join")
        world.access.refresh()
        node = Rogue(world, bearer(token))
        assert (await node.hello("n1")).HasField("welcome")
        reading = asyncio.create_task(node.until_goodbye())
        own = psutil.Process()
        message = pb.ConnectRequest(pong=pb.Pong(nonce=1))
        for _ in range(WARM_UP):
            await node.say(message)
        before = own.memory_info().rss
        for _ in range(MESSAGES):
            await node.say(message)
        grown = own.memory_info().rss - before
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await node.close()
        assert grown < KEPT_MAX * MESSAGES
