"""Tables are complete: events, commands, moves, records; and the core keeps no state of its own."""

from __future__ import annotations

import ast
import inspect
import itertools
import pkgutil
import types
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import scheduler_service.core
import scheduler_service.policies
from scheduler_service.core import commands, events, records, scheduler, transitions
from scheduler_service.core.errors import InvariantViolation
from scheduler_service.core.outcomes import (
    AttemptState,
    NodeAvailability,
    NodeHealth,
    Outcome,
    RequestState,
)
from scheduler_service.core.types import Node, NodeSpec, Request
from scripts import draw_transitions
from tests.builders import World

CORE = Path(scheduler_service.core.__file__).parent
MODULES = [
    f"{package.__name__}.{info.name}"
    for package in (scheduler_service.core, scheduler_service.policies)
    for info in pkgutil.iter_modules(package.__path__)
]


def classes_of(module: types.ModuleType) -> set[type]:
    """The classes that a module defines."""
    mine = inspect.getmembers(module, inspect.isclass)
    return {cls for _, cls in mine if cls.__module__ == module.__name__}


def test_every_event_is_handled_and_named_in_the_union() -> None:
    parts = {events.RunningItem, events.ItemEnd}  # of other events
    handled = {*scheduler._APPLY, events.RequestsCancelled}  # cancels go first, by themselves
    assert handled == set(get_args(events.Event))
    assert handled == classes_of(events) - parts


def test_every_command_is_named_in_the_union() -> None:
    assert set(get_args(commands.Command)) == classes_of(commands)


def test_unknown_event_is_our_own_fault() -> None:
    world = World()
    with pytest.raises(KeyError):
        world.scheduler.step(world.now, [object()])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("states", "table"),
    [
        (RequestState, transitions.REQUEST),
        (AttemptState, transitions.ATTEMPT),
        (NodeHealth, transitions.HEALTH),
        (NodeAvailability, transitions.AVAILABILITY),
    ],
)
def test_tables_of_moves_are_total(states, table) -> None:  # type: ignore[no-untyped-def]
    assert set(table) == set(states)
    assert all(move in states for moves in table.values() for move in moves)


def test_ends_are_final() -> None:
    assert transitions.REQUEST[RequestState.FINISHED] == frozenset()
    assert transitions.HEALTH[NodeHealth.LOST] == frozenset()
    ends = set(AttemptState) - {AttemptState.RUNNING}
    assert all(transitions.ATTEMPT[end] == frozenset() for end in ends)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(RequestState, repeat=2)))
def test_requests_make_legal_moves_only(before: RequestState, after: RequestState) -> None:
    request = Request(1, "r", "m", state=before)
    if after in transitions.REQUEST[before]:
        transitions.move_request(request, after)
        assert request.state is after
    else:
        with pytest.raises(InvariantViolation, match=before.name):
            transitions.move_request(request, after)
        assert request.state is before


@pytest.mark.parametrize(("before", "after"), list(itertools.product(NodeHealth, repeat=2)))
def test_nodes_make_legal_moves_only(before: NodeHealth, after: NodeHealth) -> None:
    node = Node("n", "b", 1, NodeSpec(()), 0, 0, health=before)
    if after is before or after in transitions.HEALTH[before]:
        transitions.move_health(node, after)
        assert node.health is after
    else:
        with pytest.raises(InvariantViolation, match=before.name):
            transitions.move_health(node, after)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(NodeAvailability, repeat=2)))
def test_availability_makes_legal_moves_only(
    before: NodeAvailability, after: NodeAvailability
) -> None:
    node = Node("n", "b", 1, NodeSpec(()), 0, 0, availability=before)
    if after is before or after in transitions.AVAILABILITY[before]:
        transitions.move_availability(node, after)
        assert node.availability is after
    else:
        with pytest.raises(InvariantViolation, match=before.name):
            transitions.move_availability(node, after)


def test_only_transitions_set_the_states_that_have_a_table() -> None:
    """A node that comes back takes over what operators wanted of it; no other line sets a state."""
    setters = []
    for path in sorted(CORE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if stored and node.attr in ("state", "health", "availability"):
                setters.append((path.name, ast.unparse(node)))
    elsewhere = [s for s in setters if s[0] != "transitions.py" and s[1] != "self.state"]
    assert elsewhere == [("sessions.py", "node.availability")]


def test_the_page_of_lifecycles_is_drawn_from_the_tables() -> None:
    assert draw_transitions.TARGET.read_text("utf-8") == draw_transitions.document()
    assert draw_transitions.main(["--check"]) == 0


def test_every_public_record_is_known_and_every_end_has_its_name() -> None:
    names = {
        value for name, value in vars(records).items() if name.isupper() and isinstance(value, str)
    }
    assert names >= records.PUBLIC
    assert set(records.OF_OUTCOME.values()) <= records.PUBLIC
    assert set(Outcome) - set(records.OF_OUTCOME) == {Outcome.SUCCEEDED}


@pytest.mark.parametrize("name", MODULES)
def test_no_module_keeps_state_that_can_change(name: str) -> None:
    """All state is in `State`: what a module holds is `Final`, and nothing writes to it."""
    module = import_module(name)
    tree = source_of(module)
    final = {
        ast.unparse(node.target)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation)
    }
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }  # judged where it is made
    for attribute, value in vars(module).items():
        if attribute in imported:
            continue
        if not attribute.startswith("__") and isinstance(value, dict | list | set | bytearray):
            assert attribute in final, f"{name}.{attribute} can be changed"
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            assert ast.unparse(node.value) not in final, ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr in CHANGES:
            assert ast.unparse(node.value) not in final, ast.unparse(node)
        assert not isinstance(node, ast.Global)


CHANGES = {"append", "add", "clear", "extend", "pop", "remove", "setdefault", "update"}


def source_of(module: types.ModuleType) -> ast.Module:
    """A module's syntax tree."""
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_ordered_by_a_set_or_by_hash_or_id(name: str) -> None:
    """Sets answer membership; `id` only keys the invariants' own count."""
    for node in ast.walk(source_of(import_module(name))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "hash"
            assert node.func.id != "id" or name.endswith("invariants")
        if isinstance(node, ast.For | ast.comprehension):
            assert not isinstance(node.iter, ast.Set | ast.SetComp), ast.unparse(node.iter)
            called = node.iter.func if isinstance(node.iter, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in ("set", "frozenset"))
