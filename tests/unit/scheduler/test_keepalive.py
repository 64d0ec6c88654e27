"""Does anybody's keepalive offend the scheduler's servers, so that they end the connection?"""

from __future__ import annotations

from typing import Any

import pytest

from batchyard import channel
from node_agent.rpc import settings as agent
from scheduler_service import servers
from scheduler_service.config_security import AbuseSection

SERVER = dict(servers._options(1 << 20, AbuseSection()))
DIALLERS: dict[str, dict[str, Any]] = {
    "agent": dict(agent.CHANNEL_OPTIONS),
    "client": dict(channel._OPTIONS),
    # gRPC pings no more often than that, whatever a foreign client is told.
    "foreign": {"grpc.keepalive_time_ms": 10_000},
}


@pytest.mark.parametrize("who", DIALLERS)
def test_no_peer_pings_more_often_than_the_servers_allow(who: str) -> None:
    """Behaviour 71: or they answer too_many_pings and the session is gone."""
    least_ms = SERVER["grpc.http2.min_ping_interval_without_data_ms"]
    assert least_ms <= DIALLERS[who]["grpc.keepalive_time_ms"]
    assert SERVER["grpc.keepalive_permit_without_calls"] == 1, "an idle connection may ping, too"


@pytest.mark.parametrize("who", ["agent", "client"])
def test_a_dead_link_is_found_before_half_a_minute_and_pings_never_stop(who: str) -> None:
    """Behaviour 72: silence of the link itself, whatever the session says."""
    options = DIALLERS[who]
    found_ms = options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"]
    assert found_ms <= 40_000
    assert options["grpc.http2.max_pings_without_data"] == 0
