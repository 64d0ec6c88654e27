"""Engines of each kind, built and started; `--engines` adds the real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from node_agent.engines.registry import build_engine
from scripts.make_tiny_model import write_tiny_model
from tests.contract.engine_kinds import KINDS, REAL_KINDS, SLOTS, Kind
from tests.integration.link import Link
from tests.unit.engines.llamacpp_http import llamacpp_server
from tests.unit.engines.oip_server import oip_server
from tests.unit.engines.recording_sink import Bench, serving

Start = Callable[..., Awaitable[Bench]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `kind` is run for each."""
    if "kind" in metafunc.fixturenames:
        kinds = {**KINDS, **(REAL_KINDS if metafunc.config.getoption("--engines") else {})}
        if "link" in metafunc.fixturenames:
            kinds = {name: kind for name, kind in kinds.items() if kind.server}
        metafunc.parametrize("kind", list(kinds.values()), ids=list(kinds), indirect=True)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF file."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return str(path)


@pytest.fixture(scope="session")
def llamacpp_url(tiny_model: str) -> Iterator[str]:
    """A server that runs already, for engines that attach to one."""
    with llamacpp_server(tiny_model, slots=SLOTS) as server:
        yield server.url


@pytest_asyncio.fixture
async def oip_address() -> AsyncIterator[str]:
    """A scripted server of the Open Inference Protocol, with the models of the contract."""
    async with oip_server(ready=["m"], unloaded=["later"]) as server:
        yield server.address


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind under test. A test that is marked with what it `needs` is skipped where a kind has
    it not, and says why.
    """
    chosen: Kind = request.param
    for mark in request.node.iter_markers("needs"):
        for feature in mark.args:
            if feature in chosen.lacks:
                pytest.skip(chosen.lacks[feature])
    return chosen


@pytest.fixture
def needs(kind: Kind, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options that only this machine knows."""
    if kind.name == "llamacpp":
        model = Path(request.getfixturevalue("tiny_model"))
        return {"model_path": str(model), "model_folder": str(model.parent)}
    if kind.server:
        option = "address" if kind.name == "oip" else "url"
        return {option: request.getfixturevalue(kind.server)}
    return {}


@pytest_asyncio.fixture
async def link(kind: Kind, needs: dict[str, Any]) -> AsyncIterator[Link]:
    """What stands between the engine and its server; only kinds that have a server are tried."""
    ((option, address),) = needs.items()
    scheme = "http://" if option == "url" else ""
    async with Link.to(address.removeprefix(scheme)) as link:
        needs[option] = f"{scheme}{link.address}"
        yield link


@pytest.fixture
def load_options(kind: Kind, request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """Options of a load of "later"; None: `kind` refuses it."""
    if kind.loads is None or "lora_path" not in kind.loads:
        return None if kind.loads is None else dict(kind.loads)
    folder: Path = request.getfixturevalue("vllm_folder")
    return {"lora_path": str(folder / kind.loads["lora_path"])}


@pytest_asyncio.fixture
async def start(kind: Kind, needs: dict[str, Any]) -> AsyncIterator[Start]:
    """Build and start engines of `kind`; at the end they stop, idle, with every rule kept."""
    async with AsyncExitStack() as stack:

        async def start_one(**options: Any) -> Bench:
            options = {**kind.options, **needs, **options}
            engine = build_engine(engine_id="e1", kind=kind.name, options=options)
            return await stack.enter_async_context(serving(engine, "m", kind.params))

        yield start_one
