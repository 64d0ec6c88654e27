"""Files and functions stay small enough to be read at once, or say why not."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.source_tree import files, functions, inside, judge, parse, refuse

FUNCTION_LINES = 70
ENTRY_POINT_LINES = 40


def limit(path: Path) -> int:
    """Return how many lines a file of this kind may have."""
    if path.suffix == ".proto":
        return 400
    return 600 if inside(path).startswith("tests/") else 500


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_files_are_short() -> None:
    judge(
        "files",
        {
            inside(path): f"{lines(path)} lines, the limit is {limit(path)}"
            for path in files(".py", ".proto")
            if lines(path) > limit(path)
        },
    )


def test_functions_are_short() -> None:
    offences = {}
    for path in files(".py"):
        for name, function in functions(parse(path)):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                offences[f"{inside(path)}::{name}"] = (
                    f"{length} lines, the limit is {FUNCTION_LINES}"
                )
    judge("functions", offences)


def test_entry_points_only_lead_in() -> None:
    long = [
        f"{inside(path)}: {lines(path)} lines, the limit is {ENTRY_POINT_LINES}"
        for path in files(".py")
        if path.name == "__main__.py" and lines(path) > ENTRY_POINT_LINES
    ]
    refuse("move the rest to a module", long)


def test_package_files_hold_a_docstring_and_names_only() -> None:
    offences = {}
    for path in files(".py"):
        if path.name != "__init__.py":
            continue
        body = parse(path).body
        more = [
            f"`{type(node).__name__}` in line {node.lineno}" for node in body if not is_name(node)
        ]
        if more:
            offences[inside(path)] = "move to a module of its own: " + ", ".join(more)
    judge("packages", offences)


def test_packages_say_what_they_are_for() -> None:
    silent = [
        inside(path)
        for path in files(".py")
        if path.name == "__init__.py" and not inside(path).startswith("tests/")
        if ast.get_docstring(parse(path)) is None
    ]
    refuse("say in a docstring what the package is for", silent)


def is_name(node: ast.stmt) -> bool:
    """Say whether a statement only gives names: imports, constants, the hook for lazy imports."""
    if isinstance(node, ast.If):  # TYPE_CHECKING
        return all(is_name(inner) for inner in node.body + node.orelse)
    if isinstance(node, ast.FunctionDef):
        return node.name in {"__getattr__", "__dir__"}
    if isinstance(node, ast.Expr):  # the docstring
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)


def test_modules_say_what_they_are_for() -> None:
    silent = [inside(p) for p in files(".py") if parse(p).body and not ast.get_docstring(parse(p))]
    refuse("answer in a docstring: what question does this file answer?", silent)
