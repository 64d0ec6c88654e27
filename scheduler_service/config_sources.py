"""Where does each value of the scheduler's configuration come from, and are they all good?

The flags (`--set a.b=c`), `BATCHYARD_SCHEDULER__SECTION__KEY`, the file `scheduler.yaml`, the
defaults; what must hold between values is in `config_checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from scheduler_service import config_checks
from scheduler_service.config import SchedulerConfig
from service_kit import config_sources as sources

ConfigError = sources.ConfigError
LoadedConfig = sources.LoadedConfig[SchedulerConfig]

FORM: Final = sources.Form(
    model=SchedulerConfig,
    file_name="scheduler.yaml",
    env_prefix="BATCHYARD_SCHEDULER__",
    judge_config=config_checks.find,
)


def load(
    path: Path | None, *, environ: Mapping[str, str], flags: Sequence[str] = ()
) -> LoadedConfig:
    """Read, merge and check.

    Args:
        path: the file; None: the first of the user's and the machine's that exists, if any.
        environ: the process's environment.
        flags: of the form "section.key=value", the last one of a path wins.

    Raises:
        ConfigError: with every fault there is.
    """
    return FORM.load(path, environ=environ, settings=flags)


def check_file(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    out: TextIO | None = None,
) -> int:
    """For `--check-config`: say all that is wrong, or that it is valid. Return 1, or 0."""
    return FORM.check(path, environ=environ, settings=flags, out=out)
