"""How does an engine or a node stand, in one word? The only place that says so.

A node's health knows one word, STARTING, for all that keeps connected engines from serving. People
need to know which it is: one that loads is waited for, one that hangs is looked at.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from scheduler_service.core.types import Engine, Node

STARTING: Final = "starting"  # has not served yet, or not since it was started again
LOADING: Final = "loading"  # is there, and takes a model into its memory
STALLED: Final = "stalled"  # answers nothing, though it is there
DOWN: Final = "down"  # has ended, cannot be reached, or refuses its agent
NO_MODEL: Final = "no_model"  # serves, and has none loaded

# Of a node whose engines differ, the nearest to serving is said.
NOT_SERVING: Final = (LOADING, STARTING, STALLED, DOWN, NO_MODEL)


def of_engine(engine: Engine) -> str:
    """Why it serves nothing, one of NOT_SERVING or a word of its agent; empty: it serves."""
    models = engine.models.values()
    loads = any(model.word == LOADING for model in models)
    if not engine.spec.healthy:
        word = engine.spec.word or DOWN
        return LOADING if loads and word == STARTING else word
    if any(model.active for model in models):
        return ""
    return LOADING if loads else NO_MODEL


def of_node(node: Node) -> str:
    """Its health in lower case; one of NOT_SERVING instead of `starting` where that says more, and
    DOWN instead of `lost` of one that left in good order as no engine of it could serve.
    """
    if _left_down(node):
        return DOWN
    if node.health is not NodeHealth.STARTING:
        return node.health.name.lower()
    words = {of_engine(engine) for engine in node.engines.values()}  # membership only
    return next((word for word in NOT_SERVING if word in words), STARTING)


def _left_down(node: Node) -> bool:
    left = node.health is NodeHealth.LOST and node.availability is NodeAvailability.DRAINED
    engines = node.engines.values()
    return left and bool(engines) and all(engine.spec.down for engine in engines)
