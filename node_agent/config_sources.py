"""Where does each configured value come from, and what is wrong with all of them?

Flag over environment (`BATCHYARD_AGENT__SECTION__KEY`) over file over default. All faults are
reported at once, each with its path, its source and, where it can be guessed, what was meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from node_agent.config import AgentConfig, EngineSection

ENV_PREFIX = "BATCHYARD_AGENT__"
FILE_NAME = "agent.yaml"
ETC = Path("/etc/batchyard")

CheckEngine = Callable[[str, str, dict[str, Any]], object]


class ConfigError(Exception):
    """The configuration cannot be used. One line per fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(slots=True, frozen=True, kw_only=True)
class LoadedConfig:
    """The configuration, and where its values come from."""

    config: AgentConfig
    path: Path | None  # of the file; None: there was none
    origins: Mapping[str, str]  # dotted key -> "flag", "env NAME" or the file's path


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
    path = path if path is not None else _find(environ)
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    if path is not None:
        _merge(merged, _read(path), str(path), origins)
    for name, value in sorted(environ.items()):
        if name.startswith(ENV_PREFIX):
            _merge(merged, _from_env(name, value, problems), f"env {name}", origins)
    _merge(merged, flags, "flag", origins)
    config = _validate(merged, origins, problems)
    if check_engine is not None:
        problems += _engine_problems(merged.get("engines"), check_engine)
    if config is None or problems:
        raise ConfigError(problems)
    return LoadedConfig(config=config, path=path, origins=origins)


def _find(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    for folder in (Path(home) / "batchyard", ETC):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError([f"{path}: cannot be read: {fault}"]) from fault
    except yaml.YAMLError as fault:
        raise ConfigError([f"{path}: is not YAML: {' '.join(str(fault).split())}"]) from fault
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError([f"{path}: must be a mapping of keys to values"])
    return content


def _from_env(name: str, value: str, problems: list[str]) -> dict[str, Any]:
    """Values are YAML, so lists and numbers can be written; names nest at double underscores."""
    keys = name.removeprefix(ENV_PREFIX).lower().split("__")
    try:
        content: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        problems.append(f"{'.'.join(keys)} (env {name}): is not YAML")
        return {}
    for key in reversed(keys):
        content = {key: content}
    return dict(content)


def _merge(
    into: dict[str, Any],
    values: Mapping[str, Any],
    source: str,
    origins: dict[str, str],
    prefix: str = "",
) -> None:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(into.get(key), dict | None):
            into[key] = dict(into.get(key) or {})
            _merge(into[key], value, source, origins, f"{path}.")
        else:
            into[key] = value
            origins[path] = source


def _validate(
    merged: dict[str, Any], origins: Mapping[str, str], problems: list[str]
) -> AgentConfig | None:
    try:
        return AgentConfig.model_validate(merged)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            path, message = _explain(fault["loc"], fault["type"], fault["msg"])
            source = _origin(path, origins)
            problems.append(f"{path}{source}: {message}")
        return None


def _explain(loc: tuple[int | str, ...], kind: str, message: str) -> tuple[str, str]:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    if kind == "extra_forbidden":
        return path, f"is not a key here{_did_you_mean(loc)}"
    if path == "engines" and kind in ("missing", "too_short"):
        return path, 'name at least one engine, as "--engine simulated" or "engines: [{kind: ...}]"'
    return path or "config", message.removeprefix("Value error, ")


def _did_you_mean(loc: tuple[int | str, ...]) -> str:
    model: type[BaseModel] | None = AgentConfig
    for part in loc[:-1]:
        model = _section(model, str(part)) if not isinstance(part, int) else model
    known = list((model or AgentConfig).model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; there are: {', '.join(sorted(known))}"


def _section(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    field = model.model_fields.get(name) if model is not None else None
    kind = field.annotation if field is not None else None
    if name == "engines":
        return EngineSection
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else model


def _origin(path: str, origins: Mapping[str, str]) -> str:
    while path:
        if path in origins:
            return f" ({origins[path]})"
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return ""


def _engine_problems(engines: object, check: CheckEngine) -> list[str]:
    """What the kinds say of their options, as far as the entries can be read."""
    problems: list[str] = []
    for index, entry in enumerate(engines if isinstance(engines, list | tuple) else []):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
            continue
        options = {key: value for key, value in entry.items() if key not in ("id", "kind")}
        try:
            check(str(entry.get("id") or entry["kind"]), entry["kind"], options)
        except ValueError as fault:
            problems += [f"engines[{index}]: {line}" for line in str(fault).splitlines()]
    return problems
