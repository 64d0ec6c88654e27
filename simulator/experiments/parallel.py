"""How are independent runs spread over the machine's cores? In order, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def spread(act: Callable[[A], B], items: Iterable[A], *, alone: bool = False) -> list[B]:
    """`act`, a function of a module, of each item: a process per core, or all in this one."""
    if alone:
        return [act(item) for item in items]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(act, items))
