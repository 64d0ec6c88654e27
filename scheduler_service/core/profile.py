"""How long should it take there? By the profile that the agent states, and by what was learned.

A profile says how fast a prompt is taken in and how long a token takes at each concurrency. What
attempts really took, over what the profile says, is learned as the engine's slowness: 1 is as
stated, 3 is three times slower (a hot GPU, a neighbour), clamped so that one surprise decides
nothing.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.types import SECOND, Attempt, Duration, Engine, Instant, ModelSpec

SLOWNESS_LEAST: Final = 0.5
SLOWNESS_MOST: Final = 4.0
PREFIXES_MAX: Final = 1_024  # remembered per engine
PREFILL_LIMIT: Final = 1 * SECOND  # of prompts sent and not taken in yet


def token_time(model: ModelSpec, concurrency: int) -> Duration:
    """Time per output token while so many run, between the stated points; 0: not stated."""
    before: tuple[int, Duration] | None = None
    for point in model.token_times:
        if concurrency <= point[0]:
            if before is None:
                return point[1]
            share = (concurrency - before[0]) / (point[0] - before[0])
            return before[1] + int(share * (point[1] - before[1]))
        before = point
    return before[1] if before is not None else 0


def prefill_time(model: ModelSpec, tokens: int) -> Duration:
    """Time to take in a prompt; 0: not stated."""
    return int(tokens * SECOND / model.prefill_rate) if model.prefill_rate else 0


def backlog(engine: Engine, now: Instant) -> Duration:
    """Time until the prompts that it was sent are taken in."""
    return max(0, engine.prefill_until - now)


def takes_prompt(engine: Engine, model: str, uncached: int, now: Instant) -> bool:
    """Whether the prompt is taken in within the limit; one that never could may go alone."""
    waiting = engine.prefill_until - now
    if waiting <= 0:
        return True
    return waiting + prefill_time(engine.models[model], uncached) <= PREFILL_LIMIT


def uncached(engine: Engine, prompt: int, affinity_key: str) -> int:
    """Tokens of the prompt that the engine does not know from an earlier one of its key."""
    return prompt - min(prompt, engine.prefixes.get(affinity_key, 0)) if affinity_key else prompt


def note_dispatch(attempt: Attempt, now: Instant) -> None:
    """An attempt goes out: what should it take, and what will the engine know afterwards?"""
    engine, request = attempt.engine, attempt.request
    model = engine.models[attempt.model]
    if model.token_times:
        fresh = uncached(engine, request.prompt, request.affinity_key)
        prefill = prefill_time(model, fresh)
        attempt.expected_start = backlog(engine, now) + prefill
        attempt.expected_token = token_time(model, engine.in_flight_inputs + attempt.inputs)
        if prefill:
            engine.prefill_until = max(now, engine.prefill_until) + prefill
    if request.affinity_key:
        prefixes = engine.prefixes
        prefixes.pop(request.affinity_key, None)  # the latest last
        prefixes[request.affinity_key] = request.prompt
        if len(prefixes) > PREFIXES_MAX:
            del prefixes[next(iter(prefixes))]


def learn(attempt: Attempt, took: Duration) -> None:
    """An attempt succeeded: was the engine slower than stated?"""
    expected = attempt.expected_start + attempt.expected_token * attempt.output_tokens
    if expected > 0:
        slowness = attempt.engine.slowness
        before = slowness.get(attempt.model, 1.0)
        seen = min(SLOWNESS_MOST, max(SLOWNESS_LEAST, took / expected))
        slowness[attempt.model] = before + (seen - before) / 8
