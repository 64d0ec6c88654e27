"""What does the node port go by, and as whom does it speak?"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_service.core.state import TERM_SHIFT
from scheduler_service.core.types import MILLISECOND, SECOND, Duration

PROTOCOL_VERSION = 1  # spoken here
OLDEST_PROTOCOL_VERSION = 1  # still understood


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePortSettings:
    """Times and sizes of node sessions. All but the last three are told to the agents."""

    heartbeat_interval: Duration = 1 * SECOND
    session_timeout: Duration = 3 * SECOND
    resume_window: Duration = 2 * SECOND
    report_interval: Duration = 1 * SECOND
    coalesce: Duration = 5 * MILLISECOND
    max_message_bytes: int = 64 << 20
    # Seals what a next scheduler may adopt; empty: nothing is handed over.
    cookie_key: bytes = field(default=b"", repr=False)
    hello_timeout: Duration = 10 * SECOND  # for the first message of a stream
    reconnect_after: Duration = 200 * MILLISECOND  # asked of agents that should dial again


class Identity:
    """The cluster, the term, and the epochs of this term's sessions."""

    def __init__(self, cluster_id: str, term: int) -> None:
        self.cluster_id = cluster_id
        self.term = term
        self._sessions = 0

    def next_epoch(self) -> int:
        """Number of a new session: above those of all earlier ones in the cluster."""
        self._sessions += 1
        return self.term << TERM_SHIFT | self._sessions
