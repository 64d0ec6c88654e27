"""A collector of traces inside the demo: receives OTLP over HTTP, keeps all, writes one JSON file.

The file is OTLP JSON, {"resourceSpans": [...]}, which Jaeger's user interface loads as it is. OTLP
JSON is protobuf's JSON but for two rules: ids are hexadecimal, and enums are numbers.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from batchyard.cli.dev.ports import HOST
from batchyard.cli.views.plain import Document

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SERVICE: Final = "batchyard-demo"
DISTRIBUTION: Final = "opentelemetry-exporter-otlp-proto-http"
_IDS: Final = ("traceId", "spanId", "parentSpanId")
_FLUSH_MS: Final = 5_000


class Collector:
    """The receiver; a thread of its own answers, so a busy event loop delays no exporter."""

    def __init__(self) -> None:
        self._groups: list[Document] = []  # OTLP JSON, as it came
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def close(self) -> None:
        """Receive no more. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def document(self) -> Document:
        """All that came, one entry per process."""
        merged: dict[str, Document] = {}
        with self._lock:
            for group in self._groups:
                key = json.dumps(group.get("resource", {}), sort_keys=True)
                if key in merged:
                    merged[key]["scopeSpans"] += group["scopeSpans"]
                else:
                    merged[key] = {**group, "scopeSpans": list(group["scopeSpans"])}
        return {"resourceSpans": list(merged.values())}

    def take(self, body: bytes) -> bytes:
        """Keep an ExportTraceServiceRequest; the answer to it.

        Raises:
            DecodeError: it is none.
        """
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        request = ExportTraceServiceRequest.FromString(body)
        groups: list[Document] = [
            MessageToDict(group, use_integers_for_enums=True) for group in request.resource_spans
        ]
        for group in groups:
            _write_ids_in_hex(group)
        with self._lock:
            self._groups += groups
        answer: bytes = ExportTraceServiceResponse().SerializeToString()
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self.take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # as the base class calls it
                from google.protobuf.message import DecodeError

                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                try:
                    status, answer = 200, take(body)
                except DecodeError:
                    status, answer = 400, b""
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # base class
                """Not on the user's terminal."""

        return Handler


def spans_of(document: Document) -> Iterator[tuple[str, Document]]:
    """Every span of a trace file, with its service."""
    for group in document["resourceSpans"]:
        attributes = group.get("resource", {}).get("attributes", [])
        named = {a["key"]: a["value"].get("stringValue", "") for a in attributes}
        for scope in group["scopeSpans"]:
            for span in scope.get("spans", []):
                yield named.get("service.name", ""), span


def send_traces_to(endpoint: str) -> TracerProvider:
    """Trace this process, and those that it starts, to `endpoint`, whatever OTEL_* said before.

    For a process of the demo's own: it changes the environment and the global provider.
    """
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "500"  # ms; an agent that is killed has sent its past
    spared = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = f"{spared},{HOST}".lstrip(",")  # no proxy reaches the collector

    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": SERVICE, "service.namespace": "batchyard"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def flush(provider: TracerProvider) -> None:
    """Send what is left, and stop. It blocks: call it off the event loop."""
    provider.force_flush(_FLUSH_MS)
    provider.shutdown()


def _write_ids_in_hex(group: Document) -> None:
    for scope in group.get("scopeSpans", []):
        for span in scope.get("spans", []):
            for holder in (span, *span.get("links", [])):
                for key in _IDS:
                    if key in holder:
                        holder[key] = base64.b64decode(holder[key]).hex()
