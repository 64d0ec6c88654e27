"""What can be configured about recording the scheduler's decisions?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from service_kit.config_sections import Section
from service_kit.units import SizeBytes


class RecordingSection(Section):
    """What the core heard and decided, written down for `batchyard replay`. Prompts, answers and
    free texts are never in it; ids, names of tenants, lengths and times are."""

    file: Path | None = None
    """Where to, readable by its owner only; what was there before is kept as FILE.1. Absent:
    nothing is recorded."""
    max_size: Annotated[SizeBytes, Field(ge=64 << 10)] = 256 << 20
    """Of the file. When it is full, recording ends until the next start."""
