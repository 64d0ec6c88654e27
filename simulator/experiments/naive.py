"""What would a page of code that knows nothing of the scheduler say? Models to compare with.

They take the same arrivals, in whole nanoseconds, and are fast enough for the tens of millions of
requests that a tight standard error needs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

Demand = tuple[int, int, int]  # (instant of arrival, service, priority)


def first_come(demands: Iterable[Demand], servers: int) -> Iterator[int]:
    """Waits of one queue before several servers, in order of arrival (Kiefer and Wolfowitz)."""
    free = [0] * servers  # heap of the instants at which servers are free
    replace = heapq.heapreplace
    for at, service, _ in demands:
        start = free[0]
        if start <= at:
            yield 0
            replace(free, at + service)
        else:
            yield start - at
            replace(free, start + service)


def strict(demands: Iterable[Demand], servers: int) -> Iterator[tuple[int, int]]:
    """(priority, wait) in order of start, the most urgent first, without preemption."""
    queues: dict[int, deque[tuple[int, int]]] = {p: deque() for p in range(10, 0, -1)}
    busy: list[int] = []  # ends of what runs
    waiting = 0
    for at, service, priority in demands:
        while busy and busy[0] <= at:
            end = heapq.heappop(busy)
            if waiting:
                waiting -= 1
                yield _start(queues, end, busy)
        if len(busy) < servers:
            heapq.heappush(busy, at + service)
            yield priority, 0
        else:
            queues[priority].append((at, service))
            waiting += 1
    while waiting:
        waiting -= 1
        yield _start(queues, heapq.heappop(busy), busy)


def _start(queues: dict[int, deque[tuple[int, int]]], now: int, busy: list[int]) -> tuple[int, int]:
    """The most urgent of those that wait starts."""
    priority = next(p for p, queue in queues.items() if queue)
    at, service = queues[priority].popleft()
    heapq.heappush(busy, now + service)
    return priority, now - at


def keyed(demands: Sequence[Demand], servers: int, key: Callable[[int, int], int]) -> list[int]:
    """Waits in order of arrival, of one queue before several servers without preemption; the least
    `key(at, priority)` goes next, and of equal ones the first that came.
    """
    waits = [0] * len(demands)
    waiting: list[tuple[int, int]] = []  # (key, number)
    busy: list[int] = []  # ends of what runs
    came = 0
    while came < len(demands) or waiting:
        ends = busy[0] if waiting else demands[came][0]
        now = min(ends, demands[came][0]) if came < len(demands) else ends
        while busy and busy[0] <= now:
            heapq.heappop(busy)
        while came < len(demands) and demands[came][0] <= now:
            heapq.heappush(waiting, (key(demands[came][0], demands[came][2]), came))
            came += 1
        while waiting and len(busy) < servers:
            _, number = heapq.heappop(waiting)
            at, service, _ = demands[number]
            waits[number] = now - at
            heapq.heappush(busy, now + service)
    return waits


def own_lines(
    demands: Iterable[Demand], nodes: int, servers: int, choose: Callable[[int, Sequence[int]], int]
) -> list[int]:
    """Waits in order of arrival where each goes to a node at once, and waits there, first come
    first served. `choose(number, counts)`, numbers from 1, sees how many each node has.
    """
    counts = [0] * nodes
    free = [[0] * servers for _ in range(nodes)]  # heaps of the instants at which servers are free
    running: list[tuple[int, int]] = []  # (end, node), of all that are there
    waits = []
    for number, (at, service, _) in enumerate(demands, 1):
        while running and running[0][0] <= at:
            counts[heapq.heappop(running)[1]] -= 1
        node = choose(number, counts)
        start = max(at, free[node][0])
        heapq.heapreplace(free[node], start + service)
        heapq.heappush(running, (start + service, node))
        counts[node] += 1
        waits.append(start - at)
    return waits


def by_key(demands: Iterable[Demand], key: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """(priority, wait) in order of start at one server; the least `key(at, priority)` next."""
    waiting: list[tuple[int, int, int, int, int]] = []
    started, free_at = [], 0
    coming = deque((at, service, p, n) for n, (at, service, p) in enumerate(demands))
    while coming or waiting:
        if not waiting:
            free_at = max(free_at, coming[0][0])
        while coming and coming[0][0] <= free_at:
            at, service, priority, number = coming.popleft()
            heapq.heappush(waiting, (key(at, priority), number, at, service, priority))
        _, _, at, service, priority = heapq.heappop(waiting)
        started.append((priority, free_at - at))
        free_at += service
    return started
