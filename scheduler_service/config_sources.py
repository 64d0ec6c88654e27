"""Where does each configured value come from, and what is wrong with all of them?

Flag (`--set a.b=c`) over environment (`BATCHYARD_SCHEDULER__SECTION__KEY`) over file over default.
Values of flags and environment are YAML. All faults are reported at once, each with its path and
where it was written; a value that contradicts another is judged even while others are invalid.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from scheduler_service import config_checks
from scheduler_service.config import SchedulerConfig
from scheduler_service.config_policies import did_you_mean

ENV_PREFIX: Final = "BATCHYARD_SCHEDULER__"
FILE_NAME: Final = "scheduler.yaml"
ETC: Final = Path("/etc/batchyard")


class ConfigError(Exception):
    """The configuration cannot be used. One line per fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(slots=True, frozen=True, kw_only=True)
class LoadedConfig:
    """The configuration, and where its values come from."""

    config: SchedulerConfig
    path: Path | None  # of the file; None: there was none
    origins: Mapping[str, str]  # dotted path -> "flag", "env NAME" or "FILE:LINE"


@dataclass(slots=True)
class _Draft:
    """What was said so far, by whom, and what is wrong with it."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def lay(self, content: Mapping[Any, Any], source: Any) -> None:
        """Lay a source's values over those of weaker ones; `source(path)` says where it is."""
        _lay(self.values, content, source, self.origins, "")

    def blame(self, path: str, text: str) -> None:
        """Note a fault of the value at `path`."""
        where, asked = "", path
        while asked and not where:
            where = self.origins.get(asked, "")
            asked = asked[: max(asked.rfind("."), asked.rfind("["), 0)]
        self.problems.append(f"{path}{f' ({where})' if where else ''}: {text}")


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
    path = path if path is not None else _find(environ)
    draft = _Draft()
    if path is not None:
        _read_file(draft, path)
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX):
            keys = name.removeprefix(ENV_PREFIX).lower().split("__")
            _read_value(draft, ".".join(keys), environ[name], f"env {name}")
    for flag in flags:
        key, equals, text = flag.partition("=")
        if equals and key:
            _read_value(draft, key, text, "flag")
        else:
            draft.problems.append(f'flag "{flag}": write it as section.key=value')
    config = _validate(draft)
    if draft.problems:
        raise ConfigError(draft.problems)
    return LoadedConfig(config=config, path=path, origins=draft.origins)


def check_file(
    path: Path,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    out: TextIO | None = None,
) -> int:
    """For `--check-config FILE`: say all that is wrong, or that it is valid. Return 1, or 0."""
    out = sys.stdout if out is None else out
    try:
        load(path, environ=environ, flags=flags)
    except ConfigError as fault:
        for problem in fault.problems:
            print(problem, file=out)
        print(f"{path}: {len(fault.problems)} to correct", file=out)
        return 1
    print(f"{path}: valid", file=out)
    return 0


def _find(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    for folder in (Path(home) / "batchyard", ETC):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def _read_file(draft: _Draft, path: Path) -> None:
    """Lay the file's values, and note the line of each; keys that occur twice are faults."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        draft.problems.append(f"{path}: cannot be read: {fault}")
        return
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        draft.problems.append(f"{path}: is not YAML: {' '.join(str(fault).split())}")
        return
    if content is None:
        return
    if not isinstance(content, dict):
        draft.problems.append(f"{path}: must be a mapping of keys to values")
        return
    lines: dict[str, int] = {}
    for twice, line in _note_lines(node, "", lines):
        draft.problems.append(f"{twice} ({path}:{line}): stands there twice")
    draft.lay(content, lambda key: f"{path}:{lines.get(key, 1)}")


def _note_lines(node: Any, prefix: str, lines: dict[str, int]) -> list[tuple[str, int]]:
    """Fill in the line of each key; return the keys that occur twice."""
    twice: list[tuple[str, int]] = []
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = f"{prefix}.{key.value}" if prefix else str(key.value)
            line = key.start_mark.line + 1
            if path in lines:
                twice.append((path, line))
                continue
            lines[path] = line
            twice += _note_lines(value, path, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[f"{prefix}[{index}]"] = value.start_mark.line + 1
            twice += _note_lines(value, f"{prefix}[{index}]", lines)
    return twice


def _read_value(draft: _Draft, path: str, text: str, source: str) -> None:
    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        draft.problems.append(f"{path} ({source}): {text!r} is not YAML; put it in quotes")
        return
    for key in reversed(path.split(".")):
        content = {key: content}
    draft.lay(content, lambda _path: source)


def _lay(
    into: dict[str, Any],
    content: Mapping[Any, Any],
    source: Any,
    origins: dict[str, str],
    prefix: str,
) -> None:
    for key, value in content.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(into.get(key), dict | None):
            into[key] = dict(into.get(key) or {})
            origins.setdefault(path, source(path))
            _lay(into[key], value, source, origins, f"{path}.")
        else:
            into[key] = value
            for old in [old for old in origins if old.startswith((f"{path}.", f"{path}["))]:
                del origins[old]
            origins[path] = source(path)
            _lay_items(value, source, origins, path)


def _lay_items(value: Any, source: Any, origins: dict[str, str], path: str) -> None:
    if isinstance(value, list):
        for index in range(len(value)):
            origins[f"{path}[{index}]"] = source(f"{path}[{index}]")


def _validate(draft: _Draft) -> SchedulerConfig:
    """Judge single values, then, with the bad ones left out, how the others fit together."""
    values = draft.values
    bad: list[str] = []
    while True:
        try:
            config = SchedulerConfig.model_validate(values)
            break
        except ValidationError as error:
            before = len(bad)
            for fault in error.errors(include_url=False):
                path = _path(fault["loc"])
                if path not in bad:
                    bad.append(path)
                    draft.blame(path, _explain(fault["loc"], fault["type"], fault))
                values = _without(values, fault["loc"])
            if len(bad) == before:
                raise  # leaving them out did not help: a fault of ours, better seen than looped on
    for finding in config_checks.find(config):
        if not any(_touches(path, known) for path in finding.paths for known in bad):
            draft.blame(finding.paths[0], finding.text)
    return config


def _touches(path: str, bad: str) -> bool:
    """Whether a bad value is at, above or below the path."""
    return (
        path == bad
        or path.startswith((f"{bad}.", f"{bad}["))
        or bad.startswith((f"{path}.", f"{path}["))
    )


def _path(loc: Sequence[int | str]) -> str:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _without(values: dict[Any, Any], loc: Sequence[Any]) -> dict[Any, Any]:
    """A copy without the value at `loc`; of a list, without the list."""
    if not loc or loc[0] not in values:
        return values
    copy = dict(values)
    inner = copy[loc[0]]
    if len(loc) > 1 and isinstance(inner, dict) and loc[1] in inner:
        copy[loc[0]] = _without(inner, loc[1:])
    else:
        del copy[loc[0]]
    return copy


def _explain(loc: Sequence[int | str], kind: str, fault: Any) -> str:
    if kind == "extra_forbidden":
        return f"is no key here{did_you_mean(str(loc[-1]), _keys_at(loc[:-1]))}"
    text: str = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
    given = fault["input"]
    if isinstance(given, str | int | float | bool):
        return f"{str(given)[:64]!r} {text}" if isinstance(given, str) else f"{given} {text}"
    return text


def _keys_at(loc: Sequence[int | str]) -> list[str]:
    """The keys of the section at `loc`."""
    section: type[BaseModel] = SchedulerConfig
    entry = False  # the next part names an entry of a dict or a list, not a key of the section
    for part in loc:
        if entry:
            entry = False
            continue
        annotation = section.model_fields[str(part)].annotation
        section = next(kind for kind in _inside(annotation) if issubclass(kind, BaseModel))
        entry = get_origin(annotation) in (dict, tuple)
    return list(section.model_fields)


def _inside(kind: Any) -> list[type]:
    """The classes that an annotation is made of."""
    if isinstance(kind, type) and not get_args(kind):
        return [kind]
    return [found for part in get_args(kind) for found in _inside(part)]
