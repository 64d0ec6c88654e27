"""What can be configured about a simulated engine?"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service_kit.units import DurationS

ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class SimulatedModel(BaseModel):
    """A model that the engine pretends to have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ModelName
    base_model: str = ""
    """Public name of the base; set: this is an adapter."""
    context_length: int = Field(default=32768, ge=1, le=1_000_000)
    """Tokens of prompt and output."""
    task_types: tuple[str, ...] = ()
    """Served here; empty: all."""


class SimulatedOptions(BaseModel):
    """Options of kind `simulated`. With all times zero no timer is used at all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[SimulatedModel, ...] = (SimulatedModel(name="simulated"),)
    """Names, or objects with name, base_model, context_length, task_types."""
    mode: Literal["static", "continuous"] = "continuous"
    slots: int = Field(default=8, ge=1, le=65536)
    """Inputs that run at once."""
    max_batch_size: int = Field(default=0, ge=0, le=65536)
    """Inputs per batch; 0: as slots. Static: slots // max_batch_size batches run at once."""
    look_ahead: int = Field(default=0, ge=0, le=65536)
    """Inputs held beyond the slots; more are refused with ENGINE_BUSY."""
    kv_capacity_tokens: int | None = Field(default=None, ge=1)
    """Shown, and what kv_utilization is counted against; absent: unknown."""

    latency: DurationS = 0.0
    """Base of every batch (static) or item (continuous)."""
    latency_per_item: DurationS = 0.0
    """Added for each input of the batch (static) or once (continuous)."""
    latency_per_token: DurationS = 0.0
    """Added for each output token; static: of the longest item."""
    jitter: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Times vary by up to this share, both ways; seeded."""
    warm_up: DurationS = 0.0
    """Time from start until it serves."""
    load_time: DurationS = 0.0
    """Time that a model takes to load (`batchyard models load`)."""

    output_tokens: int = Field(default=0, ge=0, le=1_000_000)
    """Natural length of an answer; 0: as many as max_tokens, or 16."""
    tokens_per_delta: int = Field(default=1, ge=0)
    """Tokens per delta of a streamed item where several are due; 0: all that are due in one."""
    embedding_dimensions: int = Field(default=8, ge=1, le=65536)

    seed: int = 0
    failure_rate: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of attempts that fail with ENGINE_ERROR; by seed, dispatch id and attempt."""
    fail_marker: str = ""
    """An item whose prompt contains it fails; empty: none."""
    crash_after_items: int = Field(default=0, ge=0)
    """The process dies (exit status 70) when this many items have finished; 0: never."""
    stalled: bool = False
    """Start as an engine that accepts and never answers."""
    directives: bool = True
    """Obey [[...]] in prompts, see simulated_plan.py."""

    @model_validator(mode="before")
    @classmethod
    def _names_as_models(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("models"), list | tuple):
            models = [{"name": m} if isinstance(m, str) else m for m in values["models"]]
            return {**values, "models": models}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> SimulatedOptions:
        names = [model.name for model in self.models]
        if not names:
            raise ValueError("models: at least one is needed")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"models: named twice: {', '.join(twice)}")
        if self.max_batch_size > self.slots:
            raise ValueError(
                f"max_batch_size: {self.max_batch_size} is more than the {self.slots} slots"
            )
        return self

    @property
    def batch_limit(self) -> int:
        return self.max_batch_size or self.slots

    @property
    def varies(self) -> bool:
        """Tell whether items may fare differently without a directive."""
        return bool(self.failure_rate or self.jitter or self.fail_marker)

    @property
    def instant(self) -> bool:
        """Tell whether nothing takes time, so that no timer is needed."""
        return not (self.latency or self.latency_per_item or self.latency_per_token)
