"""What can be configured about stored jobs?"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from scheduler_service.core.types import SECOND
from service_kit.config_sections import Section
from service_kit.units import DurationNs, PositiveDurationNs, SizeBytes

_DAY: Final = 24 * 3600 * SECOND


class JobsSection(Section):
    """Stored jobs. They need `state_dir`, where their store is."""

    max_bytes: Annotated[SizeBytes, Field(ge=1 << 20)] = 8 << 30
    """Of the store's file; a job or result that does not fit is refused with STORE_FAILED."""
    max_items: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 100_000
    """Of one job."""
    ttl: PositiveDurationNs = 7 * _DAY
    """How long a job and its results are kept after its end, unless it asks for another time; also
    how long one is kept whose input stopped coming."""
    max_ttl: PositiveDurationNs = 30 * _DAY
    """Longer times are cut to this."""
    window: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 3.0
    """Items of a model that are in its queue or on its nodes, as a multiple of its slots; the rest
    waits in the store."""
    max_window: Annotated[int, Field(strict=True, ge=4, le=100_000)] = 1_000
    """Items of a model likewise, at most."""
    unknown_model_grace: DurationNs = 600 * SECOND
    """How long items wait for a model that no node has had since the scheduler's start; then they
    fail with MODEL_NOT_FOUND."""
