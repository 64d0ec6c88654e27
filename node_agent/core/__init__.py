"""The agent's pure core: what is held, what may run, and what the scheduler must still hear.

Rules, as for the scheduler's core:

1. Everything that changes what the agent owes the scheduler lives here. Nothing else does.
2. It never awaits, sleeps, logs, or reads clocks, files or the environment; it imports no protobuf,
   no gRPC, no asyncio. Requests and results pass through as opaque objects.
3. Time enters only as `now_ns` (monotonic integer nanoseconds). The driver promises no more than
   to wake it at `next_wakeup()`.
4. Same specs and events, same commands, in every process.
5. Every item received gets exactly one result, kept until it is acknowledged or abandoned.
"""

from node_agent.core.agent import Agent
from node_agent.core.items import Held, Item, ItemState, Outcome, OutcomeKind
from node_agent.core.slots import EngineSpec
from node_agent.core.state import Ledger, Limits

__all__ = [
    "Agent",
    "EngineSpec",
    "Held",
    "Item",
    "ItemState",
    "Ledger",
    "Limits",
    "Outcome",
    "OutcomeKind",
]
