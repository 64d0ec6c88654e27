"""Where does each value of the agent's configuration come from, and are they all good?

The flags, `BATCHYARD_AGENT__SECTION__KEY`, the file `agent.yaml`, the defaults; the engines' own
options are checked too, by their kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from node_agent.config import AgentConfig, exposure
from service_kit import config_sources as sources
from service_kit.config_faults import Finding

CheckEngine = Callable[[str, str, dict[str, Any]], object]
ConfigError = sources.ConfigError
LoadedConfig = sources.LoadedConfig[AgentConfig]

NO_ENGINES: Final = 'name at least one engine, as "--engine simulated" or "engines: [{kind: ...}]"'


def load(
    *,
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    check_engine: CheckEngine | None = None,
) -> LoadedConfig:
    """Read, merge and check. `check_engine(id, kind, options)` raises ValueError for bad options.

    Raises:
        ConfigError: with every fault there is.
    """
    return form(check_engine).load(path, environ=environ, flags=flags)


def form(check_engine: CheckEngine | None = None) -> sources.Form[AgentConfig]:
    """What the agent's configuration is made of."""

    def judge_engines(values: Mapping[str, Any]) -> Iterator[Finding]:
        if check_engine is not None:
            yield from _engine_faults(values.get("engines"), check_engine)

    return sources.Form(
        model=AgentConfig,
        file_name="agent.yaml",
        env_prefix="BATCHYARD_AGENT__",
        judge_config=exposure,
        judge_values=judge_engines,
        when_missing={"engines": NO_ENGINES},
    )


def _engine_faults(engines: object, check: CheckEngine) -> Iterator[Finding]:
    """What the kinds say of their options, as far as the entries can be read."""
    for index, entry in enumerate(engines if isinstance(engines, list | tuple) else []):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
            continue
        options = {key: value for key, value in entry.items() if key not in ("id", "kind")}
        try:
            check(str(entry.get("id") or entry["kind"]), entry["kind"], options)
        except ValueError as fault:
            for line in str(fault).splitlines():
                yield Finding((f"engines[{index}]",), line)
