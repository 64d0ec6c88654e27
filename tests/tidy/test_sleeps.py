"""Tests wait on conditions; waiting for time is slow on good days and red on bad ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source_tree import ROOT, Function, files, functions, inside, judge, parse


def test_tests_wait_on_conditions_and_not_on_time() -> None:
    judge(
        "sleeps",
        {
            f"{inside(path)}::{name}": "sleeps; wait for an event or a condition"
            for path in files(".py")
            if path.is_relative_to(ROOT / "tests")
            for name, function in functions(parse(path))
            if any(sleeps(node) for node in own_nodes(function))
        },
    )


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions defined inside it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, Function):
            yield from own_nodes(node)


def sleeps(node: ast.AST) -> bool:
    """Say whether it is a call that sleeps; `asyncio.sleep(0)` only lets others run."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    if called == "asyncio.sleep":
        return ast.unparse(node.args[0]) != "0"
    return called in {"time.sleep", "sleep"}


def test_a_sleep_is_seen_where_it_is() -> None:
    source = "def outer():\n  def inner():\n    time.sleep(1)\n  asyncio.sleep(0)\n"
    found = {
        name: any(sleeps(node) for node in own_nodes(function))
        for name, function in functions(ast.parse(source))
    }
    assert found == {"outer": False, "outer.inner": True}
