"""The models over all nodes, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.v1 import scheduler_service_pb2, types_pb2
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.events import (
    CreditsGranted,
    NodeCordoned,
    NodeJoined,
    NodesHeard,
    ReportReceived,
    SessionBroken,
)
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.types import SECOND, EngineSpec, ModelSpec, NodeSpec
from scheduler_service.policies import build
from scheduler_service.rpc import models, paging
from scheduler_service.rpc.validate import Refused


def core_with(*nodes: NodeSpec, known: frozenset[str] = frozenset()) -> Scheduler:
    core = Scheduler(CoreSettings(check_every=1, known_models=known), build())
    for number, spec in enumerate(nodes, 1):
        name = f"n{number}"
        joined = NodeJoined(name, "boot", number, spec)
        credit = [(engine.engine_id, 8, None) for engine in spec.engines]
        events = [joined, NodesHeard([(name, number)]), CreditsGranted(name, number, credit)]
        core.step(number * SECOND, events)
    return core


def node(*specs: ModelSpec, **fields: Any) -> NodeSpec:
    engine = EngineSpec("e1", EngineMode.CONTINUOUS, 8, models=specs)
    return NodeSpec((engine,), **fields)


def listed(core: Scheduler, **fields: Any) -> scheduler_service_pb2.ListModelsResponse:
    return models.list_page(core.state, scheduler_service_pb2.ListModelsRequest(**fields))


def test_model_is_what_its_nodes_make_of_it() -> None:
    core = core_with(
        node(ModelSpec("m", context_length=8192, streaming=False, task_types=("chat",))),
        node(ModelSpec("m", base_model="big", context_length=4096), task_types=("embedding",)),
    )
    (info,) = listed(core).models
    assert (info.model, info.base_model, info.ready_nodes) == ("m", "big", 2)
    assert info.state == types_pb2.MODEL_STATE_ACTIVE
    assert info.context_length == 4096
    assert info.streaming
    assert list(info.task_types) == ["chat", "embedding"]


def test_model_has_the_features_that_all_its_nodes_have() -> None:
    core = core_with(
        node(ModelSpec("m", features=("tools", "regex", "json_schema"))),
        node(ModelSpec("m", features=("json_schema", "tools")), ModelSpec("old")),
    )
    found = {info.model: list(info.features) for info in listed(core).models}
    assert found == {"m": ["json_schema", "tools"], "old": []}


def test_task_types_are_left_out_where_a_node_takes_all() -> None:
    core = core_with(node(ModelSpec("m", task_types=("chat",))), node(ModelSpec("m")))
    (info,) = listed(core).models
    assert list(info.task_types) == []
    assert not info.HasField("context_length")


def test_states_tell_who_can_serve() -> None:
    core = core_with(
        node(
            ModelSpec("loading", active=False, word="loading"),
            ModelSpec("broken", active=False, word="failed"),
            ModelSpec("other", active=False),
        ),
        known=frozenset({"known"}),
    )
    states = {info.model: (info.state, info.ready_nodes) for info in listed(core).models}
    assert states == {
        "loading": (types_pb2.MODEL_STATE_LOADING, 0),
        "broken": (types_pb2.MODEL_STATE_FAILED, 0),
        "other": (types_pb2.MODEL_STATE_AVAILABLE, 0),
        "known": (types_pb2.MODEL_STATE_UNSPECIFIED, 0),
    }


def test_model_of_nodes_that_are_gone_is_not_available() -> None:
    """Neither while they may come back, nor when they are given up, nor when forgotten."""
    left = core_with(node(ModelSpec("m"), ModelSpec("other", active=False)))
    broke = core_with(node(ModelSpec("m"), ModelSpec("other", active=False)))
    left.step(9 * SECOND, [SessionBroken("n1", 1, goodbye=True)])
    broke.step(3 * SECOND, [SessionBroken("n1", 1)])
    for core in (left, broke):
        for at in (10, 20, 10_000):
            core.step(at * SECOND, [])
            found = {(info.state, info.ready_nodes) for info in listed(core).models}
            assert found == {(types_pb2.MODEL_STATE_UNSPECIFIED, 0)}
        assert not core.state.nodes, "forgotten by now"
    one_left = core_with(node(ModelSpec("m")), node(ModelSpec("m")))
    one_left.step(3 * SECOND, [SessionBroken("n1", 1, goodbye=True)])
    (info,) = listed(one_left).models
    assert (info.state, info.ready_nodes) == (types_pb2.MODEL_STATE_ACTIVE, 1)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("starting", types_pb2.MODEL_STATE_LOADING),
        ("stalled", types_pb2.MODEL_STATE_FAILED),
        ("down", types_pb2.MODEL_STATE_FAILED),
        ("", types_pb2.MODEL_STATE_ACTIVE),
    ],
)
def test_model_of_an_engine_that_does_not_answer_does_not_load(
    word: str, state: types_pb2.ModelState
) -> None:
    core = core_with(node(ModelSpec("m")))
    unhealthy = {"e1": word} if word else {}
    core.step(2 * SECOND, [ReportReceived("n1", 1, 0, {}, unhealthy=unhealthy)])
    assert [info.state for info in listed(core).models] == [state]
    core.step(3 * SECOND, [NodeCordoned("n1", True)])
    unspecified = types_pb2.MODEL_STATE_UNSPECIFIED
    assert [info.state for info in listed(core).models] == [unspecified], "cordoned"


def test_pages_follow_each_other_without_gap_or_repeat() -> None:
    core = core_with(known=frozenset(f"m{n:03}" for n in range(120)))
    seen: list[str] = []
    token = ""
    while True:
        page = listed(core, page_size=50, page_token=token)
        seen += [info.model for info in page.models]
        token = page.next_page_token
        if not token:
            break
    assert seen == [f"m{n:03}" for n in range(120)]
    assert len(listed(core).models) == paging.PAGE_DEFAULT
    assert len(listed(core, page_size=10_000).models) == 120


@pytest.mark.parametrize(("field", "value"), [("page_size", -1), ("page_token", "m001")])
def test_page_that_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises(Refused) as caught:
        listed(core_with(), **{field: value})
    assert caught.value.error.field == field
