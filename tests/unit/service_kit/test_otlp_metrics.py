"""Metrics by OTLP: what a collector in trouble may cost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from service_kit.metrics import Family
from service_kit.otlp_metrics import MetricsSender

pytest.importorskip("opentelemetry.sdk.metrics")

GIVE_UP_S = 30.0  # the test ends even where it fails


class HangingExporter:
    """Of a collector that takes the connection and never answers."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def export(self, _data: object, timeout_millis: float) -> Any:
        self.asked.set()
        self.released.wait(GIVE_UP_S)


def test_the_exit_does_not_wait_for_a_collector_that_never_answers() -> None:
    exporter = HangingExporter()

    async def serve() -> None:
        none: list[Family] = []
        sender = MetricsSender(lambda: none, cast("Any", exporter), cast("Any", None), 60.0)
        await sender.stop(within_s=0.05)

    served = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    served.start()
    assert exporter.asked.wait(GIVE_UP_S)
    served.join(GIVE_UP_S / 2)
    ended = not served.is_alive()
    exporter.released.set()
    assert ended, "it waits for the thread that exports"
