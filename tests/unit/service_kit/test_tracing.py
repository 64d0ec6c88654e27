"""Whether spans are made, what they say of their process, and that they delay no exit."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service_kit import tracing
from service_kit.version import package_version


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
    ],
)
def test_only_the_standard_variables_switch_tracing_on(environ: dict[str, str], on: bool) -> None:
    assert tracing.is_on(environ) is on


class StuckExporter(SpanExporter):
    """Never comes back until released."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def export(self, spans: object) -> SpanExportResult:
        self.release.wait(20)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        return


def test_the_flush_at_exit_is_bounded() -> None:
    """Behaviour 114: an exporter that hangs does not keep the agent from exiting."""
    exporter = StuckExporter()
    provider = tracing.make_provider("agent", exporter, instance_id="n", environ={})
    provider.get_tracer("t").start_span("s").end()
    begun = time.monotonic()
    assert tracing.stop(provider, 0.2) is False
    assert time.monotonic() - begun < 2
    exporter.release.set()


def test_a_process_that_is_not_traced_has_no_provider() -> None:
    assert tracing.start("agent", instance_id="n", environ={}) is None


def test_a_protocol_that_is_not_known_is_told(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    for protocol, told in (("carrier-pigeon", True), ("http/protobuf", False), ("", False)):
        caplog.clear()
        environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = protocol
        provider = tracing.start("agent", instance_id="n", environ=environ)
        assert provider is not None
        tracing.stop(provider)
        assert ("carrier-pigeon is not known" in caplog.text) is told


def test_without_its_packages_tracing_is_off_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert tracing.start("agent", instance_id="n", environ=environ) is None
    assert "install batchyard[otlp]" in caplog.text


@pytest.mark.parametrize(
    ("environ", "name"),
    [({}, "batchyard-agent"), ({"OTEL_SERVICE_NAME": "mine"}, "mine")],
)
def test_the_resource_names_the_service_its_version_and_its_process(
    environ: dict[str, str], name: str
) -> None:
    provider = tracing.make_provider(
        "batchyard-agent",
        InMemorySpanExporter(),
        instance_id="i",
        environ=environ,
        attributes={"batchyard.node.id": "n1"},
    )
    said = provider.resource.attributes
    provider.shutdown()
    assert (said["service.name"], said["service.namespace"]) == (name, "batchyard")
    assert (said["service.instance.id"], said["batchyard.node.id"]) == ("i", "n1")
    assert said["service.version"] == package_version()
