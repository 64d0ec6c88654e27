"""Would the collector that the environment names take our spans? Sends it an export without any.

It is asked as the exporter asks it: by the protocol of OTEL_EXPORTER_OTLP_PROTOCOL, with its
headers. What it answers tells an endpoint of the other protocol from one that is away.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import grpc

from service_kit import tracing
from service_kit.doctor import Finding

TIMEOUT_S: Final = 3.0
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def probe(environ: Mapping[str, str]) -> Finding:
    """How the way of traces stands."""
    if not tracing.is_on(environ):
        remedy = "set OTEL_EXPORTER_OTLP_ENDPOINT, as http://127.0.0.1:4318, for traces"
        return Finding(None, "traces: off", remedy)
    exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() or "otlp"
    if exporter != "otlp":
        return Finding(None, f"traces: go to the exporter {exporter}, which is not tried")
    protocol = (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    return _by_grpc(environ) if protocol == "grpc" else _by_http(environ)


def _by_http(environ: Mapping[str, str]) -> Finding:
    url = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (
        environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318").rstrip("/")
        + "/v1/traces"
    )
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    plain = _plain(url)
    what = f"traces: {plain}"
    headers = {"Content-Type": "application/x-protobuf", **_headers(environ)}
    if at:
        headers["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
    request = urllib.request.Request(plain, data=b"", headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            return Finding(True, f"{what} takes spans, over HTTP")
    except urllib.error.HTTPError as refused:
        return Finding(False, f"{what} answers {refused.code}", _remedy_of(refused.code))
    except (http.client.HTTPException, ConnectionError) as fault:
        remedy = "is that its port for gRPC? Over HTTP it is 4318 as a rule"
        return Finding(False, f"{what} speaks no HTTP: {type(fault).__name__}", remedy)
    except (OSError, ValueError) as fault:
        remedy = "start the collector, or correct the endpoint; requests go on without it"
        why = getattr(fault, "reason", fault)
        return Finding(False, f"{what} cannot be reached: {why}", remedy)


def _by_grpc(environ: Mapping[str, str]) -> Finding:
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317"
    )
    where = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    address = where.netloc.rpartition("@")[2]
    what = f"traces: {address}"
    secure = where.scheme == "https"
    channel = (
        grpc.secure_channel(address, grpc.ssl_channel_credentials())
        if secure
        else grpc.insecure_channel(address)
    )
    with channel:
        try:
            metadata = tuple((key.lower(), value) for key, value in _headers(environ).items())
            export: Any = channel.unary_unary(_EXPORT)
            export(b"", timeout=TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as fault:
            code = fault.code().name
            text = "start the collector, or correct the endpoint; over gRPC it is 4317 as a rule"
            return Finding(False, f"{what} does not take spans over gRPC: {code}", text)
    return Finding(True, f"{what} takes spans, over gRPC")


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    text = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get(
        "OTEL_EXPORTER_OTLP_HEADERS", ""
    )
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {key.strip(): unquote(value.strip()) for key, _, value in pairs}


def _remedy_of(code: int) -> str:
    if code in (401, 403):
        return "it wants a credential: OTEL_EXPORTER_OTLP_HEADERS"
    if code == 404:
        return "there is no OTLP at that path: name the collector's base, without /v1/traces"
    if code == 415:
        return "it takes another protocol: see OTEL_EXPORTER_OTLP_PROTOCOL"
    return "look at the collector's own log"


def _plain(url: str) -> str:
    """Without user and password."""
    where = urlsplit(url)
    return where._replace(netloc=where.netloc.rpartition("@")[2]).geturl()
