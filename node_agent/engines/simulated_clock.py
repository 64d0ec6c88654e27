"""What time is it for a simulated engine, and when does it look again?

An engine's time stands still while it is stalled. It has one alarm.

Timers of the loop are a millisecond late, and early by half of one. Where an engine's events are
many, that is their grain (`TICK_S`). An `exact` clock waits the last `NAP_S` in a thread that
sleeps, which is woken `WAKE_S` early, for that long it takes to be heard of; so it rings within
some 0.05 ms, and a batch that is to take 20 ms takes no 21.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

TICK_S = 0.001
NAP_S = 0.002
WAKE_S = 0.00015


class EngineClock:
    """The clock of one engine. `start` it on the loop that it is to ring on."""

    def __init__(self, ring: Callable[[], None], *, exact: bool) -> None:
        """`ring`: called on the loop when the alarm goes off."""
        self._ring = ring
        # Two, for an alarm that was switched off leaves its sleeper asleep.
        self._sleepers = ThreadPoolExecutor(2, "simulated-clock") if exact else None
        self._stalled_at: float | None = None
        self._lag_s = 0.0  # time spent stalled
        self._at = 0.0  # when the alarm goes off, by `_time`; 0: in the next iteration of the loop
        # What will set it off; None: it is off.
        self._alarm: asyncio.Handle | _Nap | None = None

    def start(self) -> None:
        """Bind to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time if self._sleepers is None else time.monotonic

    def now(self) -> float:
        """Seconds, without those it was stalled."""
        return (self._time() if self._stalled_at is None else self._stalled_at) - self._lag_s

    @property
    def is_stalled(self) -> bool:
        """Whether it stands still."""
        return self._stalled_at is not None

    def stall(self) -> None:
        """Stand still."""
        self._stalled_at = self._time()

    def go_on(self) -> None:
        """End a stall."""
        if self._stalled_at is not None:
            self._lag_s += self._time() - self._stalled_at
            self._stalled_at = None

    def ring_soon(self) -> None:
        """Set the alarm to the next iteration of the loop."""
        if self._alarm is None or self._at:
            self.silence()
            self._alarm = self._loop.call_soon(self._go_off)
            self._at = 0.0

    def ring_at(self, at: float) -> None:
        """Set the alarm to that time of this clock, unless it is set already."""
        if self._alarm is not None:
            return
        self._at = at + self._lag_s
        wait_s = self._at - self._time()
        if self._sleepers is None:
            self._alarm = self._loop.call_later(max(TICK_S, wait_s), self._go_off)
        elif wait_s > NAP_S:
            self._alarm = self._loop.call_later(wait_s - NAP_S, self._nap)
        else:
            self._nap()

    def silence(self) -> None:
        """Switch the alarm off."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def close(self) -> None:
        """Ring no more."""
        self.silence()
        if self._sleepers is not None:
            self._sleepers.shutdown(wait=False)

    def _nap(self) -> None:
        assert self._sleepers is not None
        self._alarm = nap = _Nap(self._at)
        self._sleepers.submit(self._sleep, nap)

    def _sleep(self, nap: _Nap) -> None:
        """In a thread of its own."""
        time.sleep(max(0.0, nap.at - WAKE_S - time.monotonic()))
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._wake, nap)

    def _wake(self, nap: _Nap) -> None:
        if nap.is_over:
            return
        if time.monotonic() < nap.at:
            self._loop.call_soon(self._wake, nap)
        else:
            self._go_off()

    def _go_off(self) -> None:
        self._alarm = None
        self._ring()


class _Nap:
    """A sleep of a thread."""

    __slots__ = ("at", "is_over")

    def __init__(self, at: float) -> None:
        self.at = at
        self.is_over = False

    def cancel(self) -> None:
        """Nobody is to be woken by it."""
        self.is_over = True
