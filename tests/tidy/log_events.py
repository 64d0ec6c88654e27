"""Which events do the services' logs have? Read from the calls that write them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("scheduler_service", "node_agent", "service_kit")
TOLD = {"info", "warning", "error", "critical", "exception", "log"}
LOGGERS = {"log", "logger", "_log"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """All that log."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "getLogger" in text or "LogRecord" in text:
                yield path, ast.parse(text)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Of loggers, at level info or above."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        if node.func.attr in TOLD and isinstance(owner, ast.Name) and owner.id in LOGGERS:
            yield node


def without_event() -> list[str]:
    """Calls that name no fields at all, so no event either."""
    return [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, tree in modules()
        for call in calls(tree)
        if not any(keyword.arg == "extra" for keyword in call.keywords)
    ]


def events() -> set[str]:
    """Every name that stands for an event in the fields of a line."""
    return {name for _, tree in modules() for name in _named(tree)}


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "event":
                    yield from _texts(value)
        elif isinstance(node, ast.Assign) and "made.event" in ast.unparse(node.targets[0]):
            yield from _texts(node.value)


def _texts(value: ast.expr) -> Iterator[str]:
    """Of a constant, or of either side of a choice."""
    if isinstance(value, ast.Constant):
        yield str(value.value)
    elif isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.Tuple):
        yield from _texts(value.elts[0])
