"""What can be configured about an engine that speaks the Open Inference Protocol v2?"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from service_kit.units import DurationS, PositiveDurationS


class OipOptions(BaseModel):
    """Options of kind `oip`. Only `address` is needed, of Triton; of others `models` too."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    address: Annotated[str, Field(min_length=1, max_length=253)]
    """Its gRPC port, as "127.0.0.1:8001"; in plain text: on this machine, or where that is safe."""
    models: dict[str, str] = {}
    """Public name: the server's name. Empty: all that its repository lists (Triton)."""
    task_types: tuple[str, ...] = ()
    """Served here; empty: all."""
    gpus: tuple[int, ...] = ()
    """Indexes of the GPUs that the server owns; empty: not known."""
    slots: int = Field(default=8, ge=1, le=65536)
    """Inputs that it is given at once; a guess where it is not set."""
    look_ahead: int = Field(default=0, ge=0, le=65536)
    """Requests held beyond the slots; more are refused with ENGINE_BUSY."""
    batch: Annotated[bool, Field(strict=True)] = True
    """Send requests that came as a batch in one call, where the model's shapes allow it."""
    max_batch_size: int = Field(default=0, ge=0, le=65536)
    """Of models whose configuration the server does not show; 0: they take no batches."""
    start_timeout: PositiveDurationS = 1800.0
    """To be there and have a model ready."""
    poll_interval: PositiveDurationS = 1.0
    """Between two looks at the readiness of its models."""
    call_timeout: DurationS = 300.0
    """For a call that is answered once; then its items fail with ENGINE_STALLED. 0: no limit."""
    first_token_timeout: DurationS = 120.0
    """Of a decoupled model: from the call to its first answer; then ENGINE_STALLED. 0: no limit."""
    idle_timeout: DurationS = 60.0
    """Of a decoupled model: between two answers; 0: no limit. All of them may take any time."""
