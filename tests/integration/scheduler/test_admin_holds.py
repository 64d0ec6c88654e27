"""AdminService: pause a pool, freeze the autoscaler, set the level of the log."""

from __future__ import annotations

import logging

import grpc
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service.core.settings import AutoscaleSettings, CoreSettings
from tests.integration.scheduler.admin_world import refusal, serving
from tests.unit.scheduler.small_world import SmallWorld


async def test_a_pause_answers_with_the_pool_and_its_event_names_who_asked() -> None:
    async with serving(SmallWorld()) as served:
        await served.world.join("n0")
        stub = served.stub
        paused = await stub.PausePool(pb.PausePoolRequest(pool="m", reason="a look"))
        assert paused.pool.paused
        again = await stub.PausePool(pb.PausePoolRequest(pool="m"))
        assert again.pool.paused
        resumed = await stub.ResumePool(pb.ResumePoolRequest(pool="m"))
        assert not resumed.pool.paused
        events = (await stub.ListEvents(pb.ListEventsRequest(events=["pool_paused"]))).events
        (event,) = events
        assert (event.pool, event.reason) == ("m", "a look")
        assert event.principal.startswith("anonymous@")
        code, _, _, field = await refusal(stub.PausePool(pb.PausePoolRequest()))
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "pool")
        code, _, _, _ = await refusal(stub.PausePool(pb.PausePoolRequest(pool="never")))
        assert code is grpc.StatusCode.NOT_FOUND


async def test_a_freeze_is_shown_with_its_end() -> None:
    scaled = CoreSettings(autoscale=AutoscaleSettings(enabled=True))
    async with serving(SmallWorld(scaled)) as served:
        await served.world.join("n0")
        asked = pb.FreezeAutoscaleRequest(duration=Duration(seconds=60), reason="window")
        (pool,) = (await served.stub.FreezeAutoscale(asked)).pools
        assert pool.scale.frozen
        assert pool.scale.HasField("frozen_until")
        (pool,) = (await served.stub.UnfreezeAutoscale(pb.UnfreezeAutoscaleRequest())).pools
        assert not pool.scale.frozen
        found = await served.stub.ListEvents(pb.ListEventsRequest())
        kinds = [e.event for e in found.events if e.event.startswith("autoscale")]
        assert kinds == ["autoscale_unfrozen", "autoscale_frozen"]


async def test_without_an_autoscaler_there_is_nothing_to_freeze() -> None:
    async with serving(SmallWorld()) as served:
        code, _, _, _ = await refusal(served.stub.FreezeAutoscale(pb.FreezeAutoscaleRequest()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_log_level_changes_at_once_and_back_to_what_is_configured() -> None:
    async with serving(SmallWorld()) as served:
        logger = logging.getLogger("scheduler_service.rpc")
        try:
            asked = pb.SetLogLevelRequest(level="debug", logger="scheduler_service.rpc")
            await served.stub.SetLogLevel(asked)
            assert logger.level == logging.DEBUG
            await served.stub.SetLogLevel(pb.SetLogLevelRequest(logger="scheduler_service.rpc"))
            assert logger.level == logging.INFO
            for bad, field in (({"level": "loud"}, "level"), ({"logger": "grpc"}, "logger")):
                call = served.stub.SetLogLevel(pb.SetLogLevelRequest(**bad))
                code, _, _, named = await refusal(call)
                assert (code, named) == (grpc.StatusCode.INVALID_ARGUMENT, field)
            call = served.stub.SetLogLevel(pb.SetLogLevelRequest(node_id="n0", level="debug"))
            code, reason, _, _ = await refusal(call)
            assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
        finally:
            logger.setLevel(logging.NOTSET)
