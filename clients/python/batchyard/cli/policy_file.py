"""Which policy does an argument of `batchyard policy` stand for, and how do two of them differ?"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from batchyard.cli.columns import Document
from batchyard.cli.policy_words import words_of

_ETAG: Final = re.compile(r"^# etag: ([0-9a-f]{1,64})\s*$", re.MULTILINE)


def is_settings(text: str) -> bool:
    """Whether it is `section.key=value`, several joined by semicolons, and no file."""
    return "=" in text and not Path(text).is_file()


def read_file(text: str) -> tuple[str, str]:
    """The content of a file (`-`: standard input), and the etag that `show` wrote into it.

    Raises:
        click.BadParameter: it cannot be read.
    """
    try:
        content = sys.stdin.read() if text == "-" else Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise click.BadParameter(
            f"{text}: cannot be read: {fault}; a file as `simulate --policy` takes it, or settings "
            "as policies.order=fifo"
        ) from None
    found = _ETAG.search(content)
    return content, found[1] if found else ""


def lay_settings(text: str, in_force: str) -> str:
    """The policy in force with these settings over it.

    Raises:
        click.BadParameter: one is not written as section.key=value.
    """
    values: dict[str, Any] = yaml.safe_load(in_force)
    for setting in text.split(";"):
        path, equals, written = setting.strip().partition("=")
        if not equals or not path:
            raise click.BadParameter(f"{setting!r}: write it as section.key=value")
        try:
            value = yaml.safe_load(written)
        except yaml.YAMLError:
            raise click.BadParameter(f"{setting!r}: {written!r} is not YAML") from None
        _put(values, path.split("."), value)
    dumped: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    return dumped


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        if isinstance(inner, str):  # a policy by its name alone
            inner = {"name": inner}
        values[key] = inner = inner if isinstance(inner, dict) else {}
        values = inner
    values[keys[-1]] = value


def differences(before: str, after: str) -> list[Document]:
    """A row per setting that differs, in the order of the file."""
    old, new = _flat(yaml.safe_load(before)), _flat(yaml.safe_load(after))
    return [
        {
            "setting": path,
            "now": old.get(path),
            "then": new.get(path),
            "decides": words_of(path),
        }
        for path in dict.fromkeys([*new, *old])
        if old.get(path) != new.get(path)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif key == "name" and prefix.startswith("policies."):
            found[prefix.removesuffix(".")] = value
        else:
            found[f"{prefix}{key}"] = value
    return found
