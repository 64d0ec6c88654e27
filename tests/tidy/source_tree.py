"""Which files the tidy tests look at, and what they may overlook."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written by tools or by runs; directories that start with a dot are skipped too, but for .ci.
SKIPPED = {"__pycache__", "build", "dist", "node_modules"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def everything() -> tuple[Path, ...]:
    """Return every file that is not a product of a tool."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name == ".ci" or not (name.startswith(".") or name in SKIPPED)
            # A tree laid beside the checkout's own files is not part of it.
            if not name.endswith(".egg-info") and not (Path(folder) == ROOT and name == "shared")
        ]
        found += [Path(folder, name) for name in names if name != ".git"]  # a file in a worktree
    return tuple(sorted(found))


def files(*suffixes: str) -> list[Path]:
    """Return the project's own files with these suffixes, generated code left out."""
    return [path for path in everything() if path.suffix in suffixes and "_pb2" not in path.name]


def text_files() -> list[Path]:
    """Return everything written by hand that a person reads."""
    named = [path for path in everything() if path.suffix == "" or path.name.startswith(".")]
    return files(".py", ".md", ".toml", ".yaml", ".yml", ".proto", ".sh", ".json") + named


def inside(path: Path) -> str:
    """Return the path as messages and allow-lists spell it."""
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    """Return the module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function below `tree` with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


@cache
def allowed(table: str) -> dict[str, str]:
    """Return the exceptions of one rule: what, and why."""
    path = Path(__file__).with_name("allowed.toml")
    return dict(tomllib.loads(path.read_text(encoding="utf-8")).get(table, {}))


def judge(table: str, offences: dict[str, str]) -> None:
    """Refuse every offence that has no reason in allowed.toml, and reasons for what is no more."""
    reasons = allowed(table)
    new = [f"{what}: {why}" for what, why in sorted(offences.items()) if what not in reasons]
    idle = [f"{what}: is allowed and need not be" for what in reasons if what not in offences]
    refuse(f"mend it, or give a reason under [{table}] in tests/tidy/allowed.toml", new + idle)


def refuse(advice: str, lines: list[str]) -> None:
    """Fail with the advice and the lines, if there are any."""
    if lines:
        pytest.fail("\n  ".join([f"{advice}:", *lines]), pytrace=False)
