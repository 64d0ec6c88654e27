"""Where does each configured value come from, and what is wrong with all of them?

Flag over environment (`PREFIX__SECTION__KEY`) over file over default. Values of flags and of the
environment are YAML. All faults are reported at once, each with its path and where it was written;
a value that contradicts another is judged even while others are invalid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from service_kit.config_draft import Draft
from service_kit.config_faults import (
    Finding,
    Loc,
    holds,
    path_of,
    touches,
    unknown_key,
    wrong_value,
)

Config = TypeVar("Config", bound=BaseModel)
ETC: Final = Path("/etc/batchyard")


class ConfigError(Exception):
    """The configuration cannot be used. One line per fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(slots=True, frozen=True, kw_only=True)
class LoadedConfig(Generic[Config]):
    """The configuration, and where its values come from."""

    config: Config
    path: Path | None  # of the file; None: there was none
    origins: Mapping[str, str]  # dotted path -> "flag", "env NAME" or "FILE:LINE"


def _nothing(_subject: Any) -> Iterable[Finding]:
    return ()


@dataclass(slots=True, frozen=True, kw_only=True)
class Form(Generic[Config]):
    """What a service's configuration is made of, and what is judged of it."""

    model: type[Config]
    file_name: str
    env_prefix: str  # with its "__"
    judge_config: Callable[[Config], Iterable[Finding]] = _nothing
    """Of a configuration whose single values are valid."""
    judge_values: Callable[[Mapping[str, Any]], Iterable[Finding]] = _nothing
    """Of what was written, whether or not it is valid."""
    when_missing: Mapping[str, str] = field(default_factory=dict)
    """What to say where the value of a path is missing or empty."""

    def load(
        self,
        path: Path | None,
        *,
        environ: Mapping[str, str],
        flags: Mapping[str, Any] | None = None,
        settings: Sequence[str] = (),
    ) -> LoadedConfig[Config]:
        """Read, merge and check.

        Args:
            path: the file; None: the first of the user's and the machine's that exists, if any.
            environ: the process's environment.
            flags: values given by flags, nested as in the file.
            settings: flags of the form "section.key=value"; the last one of a path wins.

        Raises:
            ConfigError: with every fault there is.
        """
        path = path if path is not None else self._find(environ)
        draft = Draft()
        readable = path is None or draft.read_file(path)
        self._read_environment(draft, environ)
        draft.lay(flags or {}, lambda _path: "flag")
        _read_settings(draft, settings)
        # Of a file that says nothing all would seem to be missing.
        config = _validate(self, draft) if readable else None
        if draft.problems or config is None:
            raise ConfigError(draft.problems)
        return LoadedConfig(config=config, path=path, origins=draft.origins)

    def read_text(self, text: str, source: str) -> tuple[Config, Mapping[str, Any]]:
        """The configuration of a file's text alone, and what the text says.

        Raises:
            ConfigError: with every fault there is.
        """
        draft = Draft()
        config = _validate(self, draft) if draft.read_text(text, source) else None
        if draft.problems or config is None:
            raise ConfigError(draft.problems)
        return config, draft.values

    def check(
        self,
        path: Path | None,
        *,
        environ: Mapping[str, str],
        flags: Mapping[str, Any] | None = None,
        settings: Sequence[str] = (),
        out: TextIO | None = None,
    ) -> int:
        """For `--check-config`: say all that is wrong, or that it is valid. Return 1, or 0."""
        out = sys.stdout if out is None else out
        name = str(path or self._find(environ) or "the configuration")
        try:
            self.load(path, environ=environ, flags=flags, settings=settings)
        except ConfigError as fault:
            for problem in fault.problems:
                print(problem, file=out)
            print(f"{name}: {len(fault.problems)} to correct", file=out)
            return 1
        print(f"{name}: valid", file=out)
        return 0

    def _find(self, environ: Mapping[str, str]) -> Path | None:
        home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
        files = (Path(home) / "batchyard" / self.file_name, ETC / self.file_name)
        return next((file for file in files if file.is_file()), None)

    def _read_environment(self, draft: Draft, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if name.startswith(self.env_prefix):
                keys = name.removeprefix(self.env_prefix).lower().split("__")
                draft.read_value(".".join(keys), environ[name], f"env {name}")


def _read_settings(draft: Draft, settings: Sequence[str]) -> None:
    for setting in settings:
        key, equals, text = setting.partition("=")
        if equals and key:
            draft.read_value(key, text, "flag")
        else:
            draft.problems.append(f'flag "{setting}": write it as section.key=value')


def _validate(form: Form[Config], draft: Draft) -> Config | None:
    """Judge single values, then, with the bad ones left out, how the others fit together.

    None: what is missing cannot be left out.
    """
    config, bad = _judge_single_values(form, draft)
    # An entry can be judged though something is wrong with the list that holds it.
    findings = [f for f in form.judge_values(draft.values) if not _any(holds, f.paths, bad)]
    if config is not None:
        findings += [f for f in form.judge_config(config) if not _any(touches, f.paths, bad)]
    for finding in findings:
        draft.blame(finding.paths[0], finding.text)
    return config


def _any(test: Callable[[str, str], bool], paths: Sequence[str], bad: Sequence[str]) -> bool:
    return any(test(path, known) for path in paths for known in bad)


def _judge_single_values(form: Form[Config], draft: Draft) -> tuple[Config | None, list[str]]:
    values: dict[Any, Any] = draft.values
    bad: list[str] = []
    left_out: list[tuple[int | str, ...]] = []
    while True:
        try:
            return form.model.model_validate(values), bad
        except ValidationError as error:
            left = values
            for fault in error.errors(include_url=False):
                loc, path = fault["loc"], path_of(fault["loc"])
                if path not in bad and loc not in left_out:
                    bad.append(path)
                    draft.blame(path or "config", _explain(form, path, fault))
                if any(loc[: len(gone)] == gone for gone in left_out):
                    continue  # it went with what holds it; what holds that is good
                left, taken = _without(left, loc)
                if taken:
                    left_out.append(taken)
            if left is values:
                return None, bad
            values = left


def _without(values: dict[Any, Any], loc: Loc) -> tuple[dict[Any, Any], tuple[int | str, ...]]:
    """A copy without the value at `loc`, and what was taken away: of a list, the whole list."""
    if not loc or loc[0] not in values:
        return values, ()
    copy = dict(values)
    inner = copy[loc[0]]
    if len(loc) > 1 and isinstance(inner, dict) and loc[1] in inner:
        copy[loc[0]], taken = _without(inner, loc[1:])
        return copy, (loc[0], *taken)
    del copy[loc[0]]
    return copy, (loc[0],)


def _explain(form: Form[Config], path: str, fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        return unknown_key(form.model, fault["loc"])
    if fault["type"] in ("missing", "too_short") and path in form.when_missing:
        return form.when_missing[path]
    return wrong_value(fault)
