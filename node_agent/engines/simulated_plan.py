"""What will the simulated engine do with this item? Decided whole when it is submitted, by seed.

Sampling parameters change nothing; max_tokens, min_tokens, stop and n are honoured. Guided
decoding (but for the regular expression ".*"), token ids and log probabilities are refused by name.

Prompts may hold directives (`simulated_directives.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.hash64 import unit_interval
from node_agent.engines.interface import EngineError, Item
from node_agent.engines.simulated_directives import NONE, Directives, Fate, read_directives
from node_agent.engines.simulated_options import SimulatedModel, SimulatedOptions
from node_agent.engines.simulated_outputs import embedding_outputs, raw_outputs, tensor_outputs
from node_agent.engines.simulated_text import check_text, nonce_of, token, tokens

ANYTHING = ".*"  # the one expression that its text is sure to match
UNNAMED_LENGTH = 16  # tokens of an answer, where neither options nor request say
_FAIL_PURPOSE = 1
_JITTER_PURPOSE = 2


@dataclass(slots=True)
class Plan:
    """All that one attempt will do; times excepted, which depend on its batch."""

    inputs: int  # that it counts for in slots and batches
    input_tokens: int = 0
    tokens: int = 0  # to write, for each choice
    first: int = 0  # index of the first one; above 0 in a continuation
    texts: list[str] = field(default_factory=list)  # whole, by choice
    outputs: list[inference_pb2.Output] = field(default_factory=list)  # where nothing is generated
    finish: types_pb2.FinishReason = types_pb2.FINISH_REASON_COMPLETE
    fate: Fate = Fate.FINISH
    fate_after: int = 0  # tokens
    sleep_s: float = 0.0
    speed: float = 1.0  # jitter: factor of its times

    def written(self, choice: int, start: int, end: int) -> str:
        """Return the text of tokens `start` to `end` of this attempt, counted from 0."""
        text = self.texts[choice]
        ends = _ends(self.first, self.tokens)
        return text[ends[start] : ends[end]]


class _Refusal(Exception):
    def __init__(self, error: EngineError) -> None:
        self.error = error


def plan_item(
    item: Item, options: SimulatedOptions, models: dict[str, SimulatedModel]
) -> Plan | EngineError:
    """Return what `item` will do, or why it cannot be done."""
    try:
        return _plan(item, options, models)
    except _Refusal as refusal:
        return refusal.error


def _plan(item: Item, options: SimulatedOptions, models: dict[str, SimulatedModel]) -> Plan:
    model = models.get(item.model)
    if model is None:
        raise _refusal(
            types_pb2.ERROR_REASON_MODEL_NOT_FOUND,
            f"model {item.model!r} is not on this engine; it has: {', '.join(models)}",
            refused=True,
        )
    request = item.request
    kind = request.WhichOneof("input")
    prompt, input_tokens = _read_prompt(request, kind)
    ordered = options.directives and "[[" in prompt
    directives = _directives(item, prompt) if ordered else NONE
    if kind in ("text", "chat", "tokens"):
        plan = _generative(item, options, model, input_tokens, directives)
    elif kind == "embedding":
        texts = request.embedding.texts
        dimensions = request.embedding.dimensions or options.embedding_dimensions
        plan = Plan(inputs=min(len(texts), options.slots), input_tokens=input_tokens)
        plan.outputs = embedding_outputs(texts, dimensions, options.seed)
    elif kind == "tensors":
        plan = Plan(inputs=1, outputs=tensor_outputs(request.tensors))
    else:
        plan = Plan(inputs=1, outputs=raw_outputs(request.raw))
    if ordered or options.varies:
        _decide_fate(item, options, plan, prompt, directives)
    return plan


def _read_prompt(request: inference_pb2.InferenceRequest, kind: str | None) -> tuple[str, int]:
    """Return the text of the input, for its directives, and its length in tokens."""
    if kind == "text":
        prompt = request.text.prompt
    elif kind == "chat":
        prompt = "\n".join(part.text for turn in request.chat.messages for part in turn.parts)
    elif kind == "embedding":
        prompt = "\n".join(request.embedding.texts)
    elif kind == "tokens" and request.tokens.ids:
        return "", len(request.tokens.ids)
    elif kind in ("tensors", "raw"):
        return "", 0
    else:
        prompt = ""
        if kind not in (None, "tokens"):
            raise _refusal(
                types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
                f"the simulated engine takes no input of kind {kind!r}",
                field=f"request.{kind}",
                metadata={"feature": str(kind)},
            )
    if not prompt:
        raise _refusal(
            types_pb2.ERROR_REASON_INVALID_ARGUMENT,
            "there is nothing to work on: the input is empty",
            field=f"request.{kind or 'input'}",
        )
    return prompt, len(prompt) // 4 + 1


def _directives(item: Item, prompt: str) -> Directives:
    try:
        return read_directives(prompt, item.attempt)
    except ValueError as error:
        raise _refusal(
            types_pb2.ERROR_REASON_INVALID_ARGUMENT, str(error), field="request"
        ) from error


def _generative(
    item: Item,
    options: SimulatedOptions,
    model: SimulatedModel,
    input_tokens: int,
    directives: Directives,
) -> Plan:
    params = item.request.params
    constraint = params.WhichOneof("constraint")
    if constraint == "regex" and params.regex == ANYTHING:
        constraint = None
    if constraint is not None or item.request.HasField("output"):
        _refuse_what_it_cannot(item.request.output, constraint)
    choices = params.n or 1
    plan = Plan(inputs=min(choices, options.slots), input_tokens=input_tokens)
    if item.continuation is not None:
        plan.first = _resume_index(item.continuation, choices)
    limit = item.max_tokens or params.max_tokens or None
    natural = directives.tokens
    if natural is None:
        natural = options.output_tokens or limit or UNNAMED_LENGTH
    plan.tokens = max(0, max(natural, params.min_tokens) - plan.first)
    left = _tokens_left(item, plan, model, limit)
    if left <= plan.tokens:
        plan.tokens, plan.finish = left, types_pb2.FINISH_REASON_LENGTH
    else:
        plan.finish = types_pb2.FINISH_REASON_STOP
    plan.texts = [
        tokens(nonce_of(item.dispatch_id, choice), plan.first, plan.tokens)
        for choice in range(choices)
    ]
    if params.stop:
        _apply_stop(plan, params.stop)
    return plan


def _refuse_what_it_cannot(output: inference_pb2.OutputOptions, constraint: str | None) -> None:
    """Guided text, ids and log probabilities need a model: dropping the wish would be a lie."""
    wishes = {f"output.{name}": getattr(output, name) for name in ("token_ids", "omit_text")}
    wishes["output.logprobs"] = output.HasField("logprobs")
    wishes[f"params.{constraint}"] = constraint is not None
    for place, wished in wishes.items():
        if wished:
            feature = place.partition(".")[2]
            raise _refusal(
                types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
                f"the simulated engine cannot do {feature}",
                field=f"request.{place}",
                metadata={"feature": feature},
            )


def _tokens_left(item: Item, plan: Plan, model: SimulatedModel, limit: int | None) -> int:
    """Return how many tokens this attempt may still write."""
    room = model.context_length - plan.input_tokens - plan.first
    if room <= 0:
        raise _refusal(
            types_pb2.ERROR_REASON_CONTEXT_TOO_LONG,
            f"the prompt has {plan.input_tokens} tokens, the context of {model.name!r} holds"
            f" {model.context_length}: shorten it",
            field=f"request.{item.request.WhichOneof('input')}",
            metadata={
                "promptTokens": str(plan.input_tokens),
                "contextLength": str(model.context_length),
            },
        )
    if limit is None:
        return room
    spent = item.continuation.output_tokens or plan.first if item.continuation else 0
    return min(room, max(0, limit - spent))


def _resume_index(continuation: node_service_pb2.Continuation, choices: int) -> int:
    """Return the index of the first token that is not in the delivered text."""
    if choices > 1:
        raise _refusal(
            types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
            "an output of several choices cannot be continued",
            field="request.params.n",
            metadata={"feature": "continuation"},
        )
    try:
        runs = check_text(continuation.text)
    except ValueError as error:
        raise _refusal(
            types_pb2.ERROR_REASON_INVALID_ARGUMENT,
            f"the text to continue is not this engine's: {error}",
            field="continuation.text",
        ) from error
    return runs[-1][2] + 1 if runs else 0


def _apply_stop(plan: Plan, stops: Sequence[str]) -> None:
    """Cut each choice before its first stop text; the tokens that made it up still count."""
    ends = _ends(plan.first, plan.tokens)
    lengths: list[int] = []
    for choice, text in enumerate(plan.texts):
        hits = [(text.index(stop), len(stop)) for stop in stops if stop in text]
        if not hits:
            lengths.append(plan.tokens)
            continue
        cut, length = min(hits)
        plan.texts[choice] = text[:cut]
        lengths.append(bisect_left(ends, cut + length))
    if max(lengths) < plan.tokens or all(len(t) < ends[-1] for t in plan.texts):
        plan.tokens = max(lengths)
        plan.finish = types_pb2.FINISH_REASON_STOP


def _decide_fate(
    item: Item, options: SimulatedOptions, plan: Plan, prompt: str, directives: Directives
) -> None:
    plan.sleep_s = directives.sleep_s
    plan.fate, plan.fate_after = directives.fate, min(directives.fate_after, plan.tokens)
    if plan.fate is Fate.FINISH and options.fail_marker and options.fail_marker in prompt:
        plan.fate = Fate.FAIL
    if plan.fate is Fate.FINISH and options.failure_rate:
        drawn = unit_interval(options.seed, item.dispatch_id, item.attempt, _FAIL_PURPOSE)
        plan.fate = Fate.FAIL if drawn < options.failure_rate else Fate.FINISH
    if options.jitter:
        drawn = unit_interval(options.seed, item.dispatch_id, item.attempt, _JITTER_PURPOSE)
        plan.speed = 1.0 + options.jitter * (2.0 * drawn - 1.0)


@lru_cache(maxsize=256)
def _ends(first: int, count: int) -> tuple[int, ...]:
    """Return where each token ends in the text of `count` tokens from `first`; starts with 0."""
    blank = nonce_of(0)
    return (0, *accumulate(len(token(i, blank)) for i in range(first, first + count)))


def _refusal(
    reason: types_pb2.ErrorReason,
    message: str,
    *,
    field: str = "",
    metadata: dict[str, str] | None = None,
    refused: bool = False,
) -> _Refusal:
    return _Refusal(
        EngineError(
            reason=reason, message=message, field=field, metadata=metadata or {}, refused=refused
        )
    )
