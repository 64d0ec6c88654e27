"""Every behaviour of `behaviours.toml` is named by a test, and no other number is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tidy.source_tree import ROOT, files, inside, parse, refuse

# "Behaviour 7:", "Behaviours 42, 79:", "Behaviours 3, 4 and 8", "Behaviour 107, and 37"
_NAMED: Final = re.compile(r"\b[Bb]ehaviours? (\d+(?:(?:, and |, | and )\d+)*)")
_LIST: Final = Path(__file__).with_name("behaviours.toml")


def test_every_behaviour_is_named_by_a_test_or_does_not_apply() -> None:
    listed = tomllib.loads(_LIST.read_text(encoding="utf-8"))
    known, exempt = set(listed["behaviours"]), set(listed["does_not_apply"])
    where: dict[str, str] = {}
    for path in files(".py"):
        if path.is_relative_to(ROOT / "tests") and path != Path(__file__):
            for text in docstrings(parse(path)):
                where.update(dict.fromkeys(numbers(text), inside(path)))
    named = set(where)
    lines = [f"{n}: {listed['behaviours'][n]}" for n in sorted(known - named - exempt, key=int)]
    lines += [f"{n}: {where[n]} names it, and it is not listed" for n in sorted(named - known)]
    lines += [f"{n}: a test names it, so it does apply" for n in sorted(exempt & named)]
    lines += [f"{n}: does not apply and is not listed" for n in sorted(exempt - known)]
    refuse(
        "name it where a test covers it, or give the reason in tests/tidy/behaviours.toml", lines
    )


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield those of the module and all that is defined in it, each in one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield " ".join((ast.get_docstring(node) or "").split())


def numbers(text: str) -> list[str]:
    """Return those that the text names."""
    return [n for found in _NAMED.finditer(text) for n in re.findall(r"\d+", found[1])]


def test_numbers_are_read_as_people_write_them() -> None:
    text = "Behaviour 7: x. Behaviours 42, 79: y. Behaviours 3, 4 and 8. Behaviour 107, and 37: z"
    assert numbers(text) == ["7", "42", "79", "3", "4", "8", "107", "37"]
