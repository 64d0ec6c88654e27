"""Which attribute names do the agent's spans use?

Kept here, not imported: the incubating modules of the conventions change names between versions.
"""

GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_PROVIDER = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P = "gen_ai.request.top_p"
GEN_AI_REQUEST_SEED = "gen_ai.request.seed"
GEN_AI_REQUEST_CHOICES = "gen_ai.request.choice.count"
GEN_AI_REQUEST_STREAM = "gen_ai.request.stream"
GEN_AI_RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHED = "gen_ai.usage.cache_read.input_tokens"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

DISPATCH_ID = "batchyard.dispatch.id"
REQUEST_ID = "batchyard.request.id"
ATTEMPT = "batchyard.attempt"
NODE_ID = "batchyard.node.id"
ENGINE_ID = "batchyard.engine.id"
SESSION_EPOCH = "batchyard.session.epoch"
INFLIGHT = "batchyard.agent.inflight"
BATCH_SIZE = "batchyard.batch.size"
LOCAL_QUEUE_MS = "batchyard.local_queue_ms"
REFUSED = "batchyard.refused"
TOKENS_PER_SECOND = "batchyard.tokens_per_second"
TOKENS = "tokens"  # of a `progress` event
