"""How do operators hold something back? Pools, the autoscaler.

The answer is given when the core has applied the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc

from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import report_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.events import AutoscaleFrozen, PoolPaused
from scheduler_service.core.state import Pool
from scheduler_service.core.types import NEVER, Instant
from scheduler_service.driver import Driver
from scheduler_service.report.build import ReportBuilder
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc.asker import principal_of
from scheduler_service.rpc.validate import Refused, nanoseconds

TURNS_MAX: Final = 1_000  # of the driver; see admin_changes.py

Context = grpc.aio.ServicerContext[bytes, bytes]


class AdminHolds:
    """The calls."""

    def __init__(self, driver: Driver, reports: ReportBuilder, clock: Clock) -> None:
        self._driver = driver
        self._reports = reports
        self._clock = clock

    async def pause_pool(
        self, request: pb.PausePoolRequest, context: Context
    ) -> pb.PausePoolResponse:
        """It queues and does not dispatch."""
        pool = await self._hold(request.pool, True, request.reason, context)
        return pb.PausePoolResponse(pool=pool)

    async def resume_pool(
        self, request: pb.ResumePoolRequest, context: Context
    ) -> pb.ResumePoolResponse:
        """It dispatches again."""
        pool = await self._hold(request.pool, False, request.reason, context)
        return pb.ResumePoolResponse(pool=pool)

    async def freeze(
        self, request: pb.FreezeAutoscaleRequest, context: Context
    ) -> pb.FreezeAutoscaleResponse:
        """The autoscaler plans and does nothing."""
        until = NEVER
        if request.HasField("duration"):
            until = self._clock.now() + nanoseconds(request.duration, "duration", zero=False)
        pools = await self._freeze(request.pool, until, request.reason, context)
        return pb.FreezeAutoscaleResponse(pools=pools)

    async def unfreeze(
        self, request: pb.UnfreezeAutoscaleRequest, context: Context
    ) -> pb.UnfreezeAutoscaleResponse:
        """It acts again."""
        pools = await self._freeze(request.pool, -NEVER, request.reason, context)
        return pb.UnfreezeAutoscaleResponse(pools=pools)

    async def _hold(
        self, name: str, paused: bool, reason: str, context: Context
    ) -> report_pb2.Pool:
        self._pool(name)  # there is one
        event = PoolPaused(name, paused, filters.reason(reason))
        kind = records.POOL_PAUSED if paused else records.POOL_RESUMED
        with self._reports.eventlog.asked_by(principal_of(context), kind, name):
            self._driver.post(event)
            await _until(lambda: self._pool(name).paused == paused)
        return self._written(name)

    async def _freeze(
        self, name: str, until: Instant, reason: str, context: Context
    ) -> list[report_pb2.Pool]:
        if not self._reports.state.settings.autoscale.enabled:
            raise Refused("the autoscaler is off: there is nothing to freeze", field="pool")
        names = [self._pool(name).model] if name else list(self._reports.state.pools)
        kind = records.AUTOSCALE_UNFROZEN if until < 0 else records.AUTOSCALE_FROZEN
        event = AutoscaleFrozen(name, until, filters.reason(reason))
        with self._reports.eventlog.asked_by(principal_of(context), kind, *names):
            self._driver.post(event)
            await _until(lambda: all(self._pool(n).scale.frozen_until == until for n in names))
        return [self._written(each) for each in names]

    def _pool(self, name: str) -> Pool:
        if not name:
            raise Refused("pool is missing", field="pool")
        found = self._reports.state.pools.get(name)
        if found is None:
            raise filters.not_found("pool", name)
        return found

    def _written(self, name: str) -> report_pb2.Pool:
        reports = self._reports
        return reports.pools.write(reports.state, self._pool(name), reports.window())


async def _until(is_done: Callable[[], bool]) -> None:
    """Wait for the driver's turns; one is enough unless the inbox is long."""
    for _ in range(TURNS_MAX):
        if is_done():
            return
        await asyncio.sleep(0)
