"""How are independent runs spread over the machine's cores? In order, with the same results."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def spread(act: Callable[[A], B], items: Iterable[A], *, alone: bool = False) -> list[B]:
    """`act`, a function of a module, of each item: a process per core, or all in this one."""
    if alone:
        return [act(item) for item in items]
    with ProcessPoolExecutor(initializer=_quietly) as pool:
        try:
            return list(pool.map(act, items))
        except KeyboardInterrupt:
            # What has not begun is not wanted any more, nor what has.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _quietly() -> None:
    """Ctrl-C is for the parent, which ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
