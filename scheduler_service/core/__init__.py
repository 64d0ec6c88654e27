"""What happens next? The scheduling core: events and `now` in, commands out.

Five rules:

1. Everything that changes scheduling state lives here. Nothing else changes it.
2. The core never awaits, sleeps, logs, reads clocks, environment or files, draws from a global
   random source, or imports protobuf, grpc, asyncio or opentelemetry (an import contract checks).
3. Time enters only as `now`: integer nanoseconds, monotonic. Deadlines are absolute instants held
   by the core; a driver only promises to call `step` at `next_wakeup()`.
4. The same configuration, seed and events give the same commands, in any process.
5. Every accepted request reaches exactly one terminal outcome, once.

Where to look: `scheduler.py` is the control flow of a step; `requests.py` the life of a request,
`sessions.py`, `reports.py`, `health.py` and `drains.py` that of a node, `ledger.py` and
`failover.py` that of a try; `dispatch.py` who goes next and where, `placement.py` on which engine,
`explain.py` why; `relay.py`, beside `step`, whose output may reach the client. `state.py` holds it
all.
"""

from scheduler_service.core.errors import InvariantViolation
from scheduler_service.core.scheduler import Scheduler
from scheduler_service.core.settings import CoreSettings

__all__ = ["CoreSettings", "InvariantViolation", "Scheduler"]
