"""Which models are there? ListModels, from the core's books."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from batchyard.v1 import scheduler_service_pb2, types_pb2
from scheduler_service.core import condition
from scheduler_service.core.state import Pool, State, accepts_work, in_service
from scheduler_service.core.types import Engine
from scheduler_service.rpc import paging

_BEST_FIRST: Final = (
    types_pb2.MODEL_STATE_LOADING,
    types_pb2.MODEL_STATE_AVAILABLE,
    types_pb2.MODEL_STATE_UNLOADING,
    types_pb2.MODEL_STATE_FAILED,
)
_BY_WORD: Final = {  # of `ModelSpec.word`
    "loading": types_pb2.MODEL_STATE_LOADING,
    "unloading": types_pb2.MODEL_STATE_UNLOADING,
    "failed": types_pb2.MODEL_STATE_FAILED,
}


def list_page(
    state: State,
    message: scheduler_service_pb2.ListModelsRequest,
    allowed: Container[str] | None = None,
) -> scheduler_service_pb2.ListModelsResponse:
    """One page, by name. `allowed`: only these; None: all.

    Raises:
        Refused: the page is not one that can be had.
    """
    size, after = paging.page_size(message.page_size), paging.cursor(message)
    names = sorted(n for n in state.pools if n > after and (allowed is None or n in allowed))
    shown, token = paging.page(message, names, size, lambda name: name)
    return scheduler_service_pb2.ListModelsResponse(
        models=[_model(state.pools[name]) for name in shown], next_page_token=token
    )


def _model(pool: Pool) -> scheduler_service_pb2.ModelInfo:
    specs = [engine.models[pool.model] for engine in pool.engines]
    ready = {e.node.node_id for e in pool.engines if accepts_work(e, pool.model)}
    info = scheduler_service_pb2.ModelInfo(
        model=pool.model,
        base_model=next((s.base_model for s in specs if s.base_model), ""),
        ready_nodes=len(ready),
        streaming=any(s.streaming for s in specs),
        state=_state(pool, bool(ready)),
    )
    contexts = [s.context_length for s in specs if s.context_length]
    if contexts:
        info.context_length = min(contexts)
    task_types = [
        set(s.task_types or e.node.spec.task_types)
        for s, e in zip(specs, pool.engines, strict=True)
    ]
    if task_types and all(task_types):
        info.task_types.extend(sorted(set.union(*task_types)))
    if specs:
        info.features.extend(sorted(set.intersection(*(set(s.features) for s in specs))))
    return info


def _state(pool: Pool, ready: bool) -> types_pb2.ModelState:
    """The best on any node; UNSPECIFIED: no node in service has it."""
    if ready:
        return types_pb2.MODEL_STATE_ACTIVE
    found = {_state_on(engine, pool.model) for engine in pool.engines}  # membership only
    return next((s for s in _BEST_FIRST if s in found), types_pb2.MODEL_STATE_UNSPECIFIED)


def _state_on(engine: Engine, model: str) -> types_pb2.ModelState:
    """On one engine that may not have new work of it; UNSPECIFIED: its node takes none at all."""
    if not in_service(engine.node):
        return types_pb2.MODEL_STATE_UNSPECIFIED
    word = condition.of_engine(engine)
    if word in (condition.STALLED, condition.DOWN):
        return types_pb2.MODEL_STATE_FAILED
    if word == condition.STARTING:
        return types_pb2.MODEL_STATE_LOADING
    return _BY_WORD.get(engine.models[model].word, types_pb2.MODEL_STATE_AVAILABLE)
