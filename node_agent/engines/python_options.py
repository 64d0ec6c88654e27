"""What can be configured about an engine that is a user's own Python function?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service_kit.units import DurationS, PositiveDurationS, SizeBytes

Target = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=256)]


class PythonOptions(BaseModel):
    """Options of kind `python`. Only `callable` is needed."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    callable: Target
    """"module:name" of a function over a list of requests, or of a class whose objects are such;
    plain or `async`. See docs/engines.md."""
    path: Path | None = None
    """Folder to import from; absent: the agent's own import path."""
    python: str = ""
    """Interpreter that has the function's libraries, and batchyard; empty: the agent's own."""
    model: Annotated[str, Field(max_length=256)] = ""
    """Public name; empty: the name in `callable`."""
    task_types: tuple[str, ...] = ()
    """Served here; empty: all."""

    max_batch_size: int = Field(default=8, ge=1, le=65536)
    """Inputs that one call gets at most."""
    workers: int = Field(default=1, ge=1, le=256)
    """Processes; each runs one batch at a time."""
    look_ahead: int = Field(default=0, ge=0, le=65536)
    """Inputs held beyond the slots; more are refused with ENGINE_BUSY."""
    warm_up: str = "warm up"
    """Text of the first request, which must be answered before any work comes; empty: none."""

    start_timeout: PositiveDurationS = 300.0
    """To import, load and answer the first request."""
    batch_timeout: DurationS = 300.0
    """For one call; a process that takes longer is killed, its items fail with ENGINE_STALLED.
    0: no limit."""
    cancel_grace: DurationS = 0.5
    """After the last item of a running batch was cancelled: time for the function to be
    interrupted, before its process is killed."""
    memory_limit: SizeBytes | None = None
    """A process that holds more after a batch is replaced; absent: no limit."""
    restart_delay: DurationS = 0.5
    """Before a process is started again; doubles with each failure in a row."""
    restart_delay_max: DurationS = 30.0

    @model_validator(mode="after")
    def _folder_is_there(self) -> PythonOptions:
        if self.path is not None and not self.path.is_dir():
            raise ValueError(f"path: there is no folder {str(self.path)!r}")
        return self

    @property
    def slots(self) -> int:
        """Inputs that run at once."""
        return self.max_batch_size * self.workers

    @property
    def public_name(self) -> str:
        """The model's public name."""
        return self.model or self.callable.rpartition(":")[2]
