"""What does a policy file decide? It is the file that the live scheduler takes: `scheduler.yaml`.

Its sections `policies`, `queue`, `health`, `failover`, `autoscale`, `task_types`, `models` and
`ladders` count; addresses, certificates and the like are checked and left alone. In place of a file
settings may stand, as `policies.order=fifo`, several joined by semicolons, or `default`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scheduler_service import config_sources
from scheduler_service.config import SchedulerConfig
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.types import Duration
from scheduler_service.policies.task_types import TaskDefaults
from simulator.callers import Predict, Terms, unknown
from simulator.commands.failures import UsageError
from simulator.workload.arrival import Arrival

DEFAULT: Final = "default"
# An empty file: without one, those of this machine's own scheduler would be looked for.
_NO_FILE: Final = Path(os.devnull)


@dataclass(frozen=True)
class PolicyFile:
    """One set of policies and settings to run."""

    name: str
    config: SchedulerConfig

    def settings(self, *, seed: int, term: int = 1) -> CoreSettings:
        """Of the core."""
        return replace(self.config.core_settings(term=term), seed=seed)

    def policies(self, *, seed: int) -> PolicySet:
        """Fresh ones."""
        return self.config.policy_set(seed=seed)

    @property
    def heartbeat(self) -> Duration:
        """How often nodes give a sign of life."""
        return self.config.health.heartbeat_interval

    def defaults(self, task_type: str) -> TaskDefaults:
        """What the edge would fill in."""
        _, defaults = self.config.task_defaults().resolve(task_type)
        return defaults

    def terms(self, task_type: str, *, predict: Predict | None = None) -> Terms:
        """What callers of that task type ask for where the workload does not say."""
        given = self.defaults(task_type)
        expected = given.output_tokens

        def by_task_type(_arrival: Arrival, _rid: int) -> int:
            return expected

        return Terms(
            timeout=given.timeout,
            max_wait=given.max_wait,
            degrade=given.degrade,
            max_attempts=self.config.failover.max_attempts,
            predict=predict or (by_task_type if expected else unknown),
        )


def load(text: str, *, more: Sequence[str] = ()) -> PolicyFile:
    """A file, settings, or `default`; `more` are settings laid over it.

    Raises:
        UsageError: with everything that is wrong with it.
    """
    path, settings = _NO_FILE, list(more)
    name = text
    if text.endswith((".yaml", ".yml")) or Path(text).is_file():
        path = Path(text)
        name = path.stem
        if not path.is_file():
            raise UsageError(f"--policy: there is no file {text}")
    elif "=" in text:
        settings = [part.strip() for part in text.split(";")] + settings
    elif text != DEFAULT:
        raise UsageError(
            f"--policy: {text!r} is neither a file nor settings as policies.order=fifo, "
            f"nor {DEFAULT!r}"
        )
    try:
        loaded = config_sources.load(path, environ={}, flags=settings)
    except config_sources.ConfigError as fault:
        raise UsageError(f"--policy {text}:\n{fault}") from fault
    return PolicyFile(name, loaded.config)


def load_all(texts: Sequence[str], *, more: Sequence[str] = ()) -> list[PolicyFile]:
    """All of them, by distinct names; the defaults alone where there is none."""
    files = [load(text, more=more) for text in texts or (DEFAULT,)]
    names: dict[str, int] = {}
    found = []
    for file in files:
        names[file.name] = names.get(file.name, 0) + 1
        again = names[file.name]
        found.append(file if again == 1 else replace(file, name=f"{file.name} ({again})"))
    return found
