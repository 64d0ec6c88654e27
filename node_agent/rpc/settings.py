"""Which transport options does the agent's channel have?

HTTP/2 keepalive only clears dead connections (20 s, then 10 s for the answer); liveness is the
application's heartbeat. The server must tolerate pings at this interval.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.v1 import node_service_pb2 as node
from node_agent.rpc import durations

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
METHOD = "/batchyard.v1.NodeService/Connect"
PROTOCOL_VERSION = 1
FEATURES = (
    "load_model",
    "unload_model",
    "set_slots",
    "set_log_level",
    "lift_drain",
)  # by the names of Command's fields; Drain.lifted

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_channelz", 0),
    ("grpc.enable_http_proxy", 0),  # a proxy set for downloads must not catch the session
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Timing:
    """What the Welcome sets, or its defaults."""

    heartbeat_s: float = 1.0
    report_s: float = 1.0
    coalesce_s: float = 0.005


FLOOR_S = 0.02  # no scheduler can make an agent spin


def timing_of(welcome: node.Welcome) -> Timing:
    """The intervals that the scheduler asked for."""
    default = Timing()
    heartbeat_s = default.heartbeat_s
    report_s = default.report_s
    coalesce_s = default.coalesce_s
    if welcome.HasField("heartbeat_interval"):
        heartbeat_s = max(FLOOR_S, durations.to_s(welcome.heartbeat_interval))
    if welcome.HasField("report_interval"):
        report_s = max(FLOOR_S, durations.to_s(welcome.report_interval))
    if welcome.HasField("coalesce"):
        coalesce_s = min(1.0, durations.to_s(welcome.coalesce))
    return Timing(heartbeat_s=heartbeat_s, report_s=report_s, coalesce_s=coalesce_s)
