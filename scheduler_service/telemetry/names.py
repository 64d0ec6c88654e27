"""How are attributes of spans called? Our own constants, for the conventions still move.

The tree is described in `docs/tracing.md`.
"""

from __future__ import annotations

from typing import Final

REQUEST_ID: Final = "batchyard.request.id"
PRIORITY: Final = "batchyard.priority"
TASK_TYPE: Final = "batchyard.task_type"
TENANT: Final = "batchyard.tenant"
MODEL: Final = "batchyard.model"
COST_TOKENS: Final = "batchyard.cost.tokens"
QUEUE_DEPTH: Final = "batchyard.queue.depth"
DEADLINE_REMAINING_MS: Final = "batchyard.deadline.remaining_ms"
FINISH_REASON: Final = "batchyard.finish_reason"
ATTEMPTS: Final = "batchyard.attempts"
DEGRADED: Final = "batchyard.degraded"
DEGRADE_REASON: Final = "batchyard.degrade_reason"
QUEUE_MS: Final = "batchyard.queue_ms"
QUEUE_NAME: Final = "batchyard.queue.name"
CHOSEN_BY: Final = "batchyard.queue.chosen_by"
QUEUE_OUTCOME: Final = "batchyard.queue.outcome"
QUEUE_REASON: Final = "batchyard.queue.reason"
ATTEMPT: Final = "batchyard.attempt"
NODE_ID: Final = "batchyard.node.id"
DISPATCH_ID: Final = "batchyard.dispatch.id"
BATCH_ID: Final = "batchyard.batch.id"
BATCH_SIZE: Final = "batchyard.batch.size"
BATCH_POSITION: Final = "batchyard.batch.position"
BATCH_CLOSE_REASON: Final = "batchyard.batch.close_reason"
BATCH_OLDEST_WAIT_MS: Final = "batchyard.batch.oldest_wait_ms"
OUTPUT_TOKENS: Final = "batchyard.output_tokens"
RESUME_MODE: Final = "batchyard.resume.mode"
RESUME_BYTES: Final = "batchyard.resume.bytes"
DELTAS: Final = "batchyard.deltas"
BYTES: Final = "batchyard.bytes"
ERROR_TYPE: Final = "error.type"
RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS: Final = "rpc.status_code"
