"""Can this engine take this request at all, credit aside? Each gives its own word as the reason."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from scheduler_service.core.types import Engine, Request


@dataclass(frozen=True, slots=True)
class Tried:
    """Not where it failed before, in the same process of the agent."""

    def concerns(self, request: Request) -> Hashable:
        """Where it failed."""
        return tuple(request.tried)

    def why_not(self, request: Request, engine: Engine) -> str | None:
        """ "tried" or None."""
        return "tried" if request.tried and engine.node.incarnation in request.tried else None


@dataclass(frozen=True, slots=True)
class TaskType:
    """Only where its task type is served, by the model's own list, else the node's."""

    def concerns(self, request: Request) -> Hashable:
        """Its task type."""
        return request.task_type

    def why_not(self, request: Request, engine: Engine) -> str | None:
        """ "task_type" or None."""
        served = engine.models[request.served_model].task_types or engine.node.spec.task_types
        return "task_type" if served and request.task_type not in served else None


@dataclass(frozen=True, slots=True)
class Fits:
    """Not where its known tokens are more than the context, or the engine's memory, holds."""

    def concerns(self, request: Request) -> Hashable:
        """Its known tokens."""
        return request.prompt_tokens

    def why_not(self, request: Request, engine: Engine) -> str | None:
        """ "context" or None."""
        tokens = request.prompt_tokens
        if not tokens:
            return None
        context = engine.longest(request.served_model)
        return "context" if context and tokens > context else None


@dataclass(frozen=True, slots=True)
class Resumable:
    """What goes on from partial output only goes where the model can."""

    def concerns(self, request: Request) -> Hashable:
        """Whether it goes on."""
        return request.continuing

    def why_not(self, request: Request, engine: Engine) -> str | None:
        """ "not_resumable" or None."""
        if not request.continuing or engine.models[request.served_model].resumable:
            return None
        return "not_resumable"
