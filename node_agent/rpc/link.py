"""How does the agent stay connected?

Session after session, until one ends for good. Between two tries it waits a random time below a
bound that doubles at each failure (full jitter), so that many agents do not come back in one
moment. A session that was welcomed sets the bound back. A `Goodbye` may name the wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection

from node_agent.rpc.session import SessionEnd

log = logging.getLogger("node_agent.session")

HINTS = {
    "UNIMPLEMENTED": "this port serves no nodes; dial the scheduler's node port (default 7612)",
    "UNAUTHENTICATED": "the scheduler wants credentials",
    "PERMISSION_DENIED": "the scheduler does not let this node in",
}


class Backoff:
    """Waits between tries."""

    def __init__(self, *, first_s: float, longest_s: float, seed: int | str) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._random = random.Random(seed)
        self._failures = 0

    def reset(self) -> None:
        """A try was good."""
        self._failures = 0

    def next_s(self) -> float:
        """The next wait."""
        bound_s = min(self._longest_s, self._first_s * 2 ** min(self._failures, 30))
        self._failures += 1
        return self._random.uniform(0, bound_s)


class Link:
    """Sessions, one after another."""

    def __init__(
        self,
        *,
        address: str,
        redirects: Collection[str],
        backoff: Backoff,
        run_session: Callable[[str], Awaitable[SessionEnd]],
    ) -> None:
        self._address = address
        self._redirects = redirects
        self._backoff = backoff
        self._run_session = run_session

    async def run(self) -> SessionEnd:
        """Keep connected; returns the end after which there is no other session."""
        failures = 0
        while True:
            end = await self._run_session(self._address)
            if not end.reconnect:
                return end
            failures = 0 if end.good else failures + 1
            self._log(end, failures)
            if end.good:
                self._backoff.reset()
            self._follow(end)
            await asyncio.sleep(self._wait_s(end))

    def _wait_s(self, end: SessionEnd) -> float:
        if end.reconnect_after_s is None:
            return self._backoff.next_s()
        # Named for many agents at once: spread them a little.
        return end.reconnect_after_s + min(self._backoff.next_s(), end.reconnect_after_s / 2)

    def _follow(self, end: SessionEnd) -> None:
        if not end.redirect:
            return
        if end.redirect in self._redirects:
            self._address = end.redirect
            return
        text = "redirect is not in scheduler.redirects; staying"
        log.warning(text, extra={"event": "redirect_refused", "address": end.redirect})

    def _log(self, end: SessionEnd, failures: int) -> None:
        """A long outage must not fill the log: failures 1, 2, 4, 8, ... are told."""
        if failures & (failures - 1):
            return
        fields = {
            "event": "session_lost" if end.good else "session_failed",
            "address": self._address,
            "reason": end.reason,
        }
        if failures > 1:
            fields["count"] = str(failures)
        hint = HINTS.get(end.reason)
        log.warning("%s%s", end.why, f" ({hint})" if hint else "", extra=fields)
