"""What do scheduler and agent tell each other before any message? Names of a stream's metadata.

The scheduler answers the opening of a node stream at once with who it is and what time it has, so
that a doctor can look without joining. An agent may ask who holds a node id.
"""

from __future__ import annotations

from typing import Final

# From the scheduler.
VERSION: Final = "batchyard-version"
TIME_NS: Final = "batchyard-time-ns"  # wall clock, since 1970
MESSAGE_BYTES: Final = "batchyard-max-message-bytes"
HELD_BY: Final = "batchyard-node-id-held-by"  # address of the live agent of that id; empty: none
REFUSED: Final = "batchyard-node-id-refused"  # why the credential does not admit that id; or empty
# From the agent.
ASKED_ID: Final = "batchyard-node-id"
