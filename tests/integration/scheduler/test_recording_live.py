"""A live scheduler under load, whose node is killed, is replayed to identical decisions."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from batchyard import BatchyardError, Result
from tests.integration.cluster import cluster, until

pytestmark = pytest.mark.slow
PROMPT = "a prompt that nobody may find in the recording"


async def stream(client: object, number: int) -> int:
    """Read one answer to its end; the number of its pieces."""
    pieces = 0
    async for _ in client.generate_stream(  # type: ignore[attr-defined]
        PROMPT, model="m", priority=number % 10 + 1, max_tokens=20
    ):
        pieces += 1
    return pieces
