"""Nothing is taken from a queue under a time limit, unless what comes late is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source_tree import ROOT, files, functions, inside, judge, parse
from tests.tidy.test_sleeps import own_nodes

PLACES = ("scheduler_service", "node_agent", "service_kit", "clients")
TAKES = ("get", "read", "readline", "readexactly", "recv", "__anext__")


def test_no_item_can_be_lost_at_the_instant_of_a_time_limit() -> None:
    """Behaviour 36: a limit around a read may fire as the item arrives, which is then nobody's."""
    judge(
        "timed_reads",
        {
            f"{inside(path)}::{name}": "takes an item under a time limit, and may lose it then"
            for path in files(".py")
            if any(path.is_relative_to(ROOT / place) for place in PLACES)
            for name, function in functions(parse(path))
            if any(timed_takes(function))
        },
    )


def timed_takes(function: ast.AST) -> Iterator[ast.Call]:
    """Yield what is awaited under a limit and takes something away from where it lies."""
    for node in own_nodes(function):
        if isinstance(node, ast.AsyncWith) and any(_limits(i.context_expr) for i in node.items):
            yield from (call for call in _calls(node) if _takes(call))
        elif _limits(node) and isinstance(node, ast.Call) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Call) and _takes(first):
                yield first


def _limits(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func) in ("asyncio.wait_for", "asyncio.timeout", "asyncio.timeout_at")


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for below in ast.walk(node):
        if isinstance(below, ast.Await) and isinstance(below.value, ast.Call):
            yield below.value


def _takes(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Name):
        return called.id == "anext"
    return isinstance(called, ast.Attribute) and called.attr in TAKES


def test_a_timed_read_is_seen_where_it_is() -> None:
    source = """
async def waits(): await asyncio.wait_for(event.wait(), 1)
async def takes(): await asyncio.wait_for(queue.get(), 1)
async def reads():
    async with asyncio.timeout(1):
        return await stream.read()
"""
    found = {n: any(timed_takes(f)) for n, f in functions(ast.parse(source))}
    assert found == {"waits": False, "takes": True, "reads": True}
