"""What did each source say, where, and what is wrong with how it was said?

Later sources are laid over earlier ones, key by key. Nothing is judged here but the form: whether a
file can be read, whether a text is YAML, whether a key stands there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from service_kit import bounded_yaml

Where = Callable[[str], str]  # where a source has the value of a path


@dataclass(slots=True)
class Draft:
    """The values so far, and the faults so far."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)  # by path
    problems: list[str] = field(default_factory=list)

    def lay(self, content: Mapping[Any, Any], where: Where) -> None:
        """Lay a source's values over those of weaker ones."""
        _lay(self.values, content, where, self.origins, "")

    def blame(self, path: str, text: str) -> None:
        """Note a fault of the value at `path`."""
        where, asked = "", path
        while asked and not where:
            where = self.origins.get(asked, "")
            asked = asked[: max(asked.rfind("."), asked.rfind("["), 0)]
        self.problems.append(f"{path}{f' ({where})' if where else ''}: {text}")

    def read_file(self, path: Path) -> bool:
        """Lay the file's values, each with its line; False: nothing of it can be read."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            self.problems.append(f"{path}: cannot be read: {fault}")
            return False
        return self.read_text(text, str(path))

    def read_text(self, text: str, source: str) -> bool:
        """Lay the values of a file's text, each with its line; False: nothing of it can be read."""
        try:
            node, content = bounded_yaml.read(text)
        except bounded_yaml.Unreadable as fault:
            self.problems.append(f"{source}: {fault}")
            return False
        if not isinstance(content, dict | None):
            self.problems.append(f"{source}: must be a mapping of keys to values")
            return False
        lines: dict[str, int] = {}
        for twice, line in _note_lines(node, "", lines):
            self.problems.append(f"{twice} ({source}:{line}): stands there twice")
        self.lay(content or {}, lambda key: f"{source}:{lines.get(key, 1)}")
        return True

    def read_value(self, path: str, text: str, source: str) -> None:
        """Lay one value, written as YAML."""
        try:
            _, content = bounded_yaml.read(text)
        except bounded_yaml.Unreadable:
            self.problems.append(f"{path} ({source}): {text!r} is not YAML; put it in quotes")
            return
        for key in reversed(path.split(".")):
            content = {key: content}
        self.lay(content, lambda _path: source)


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


def _lay(
    into: dict[str, Any],
    content: Mapping[Any, Any],
    where: Where,
    origins: dict[str, str],
    prefix: str,
) -> None:
    for key, value in content.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(into.get(key), dict | None):
            into[key] = dict(into.get(key) or {})
            origins.setdefault(path, where(path))
            _lay(into[key], value, where, origins, f"{path}.")
        else:
            if key in into:
                for old in [old for old in origins if old.startswith((f"{path}.", f"{path}["))]:
                    del origins[old]
            into[key] = value
            origins[path] = where(path)
            for index in range(len(value) if isinstance(value, list) else 0):
                origins[f"{path}[{index}]"] = where(f"{path}[{index}]")
