"""What is a fault scenario, and how does one run? Safety while things break, then liveness.

A scenario is a YAML file of `scenarios/`: nodes that run the agent's own core, a workload, a
network, faults. Until `heal_at` anything may break, and only the checkers' safety is asked for.
Then everything is mended, and all work must come to its end within `settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from scheduler_service.core import CoreSettings
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import EngineMode, RequestClass, ResumeMode
from scheduler_service.core.settings import FailoverSettings, Hedge, QueueSettings
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant
from scheduler_service.policies import build
from scheduler_service.recording.file import RecordingFile
from simulator.agent_node import AgentNode
from simulator.calibration import MEASURED_2023
from simulator.callers import Callers, Terms
from simulator.checkers import Accounts, Broken
from simulator.engines import ContinuousEngine, ContinuousProfile, StaticEngine, affine
from simulator.engines.interface import Engine, Host
from simulator.eventlog import EventLog, Sink
from simulator.faults import Fault, Storm, Trouble
from simulator.kinds import NodeKind
from simulator.metrics import Metrics
from simulator.network import Network, NetworkOptions
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.workload.processes import poisson
from simulator.world import World, WorldSettings

SCENARIOS: Final = Path(__file__).with_name("scenarios")
_UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}


class ScenarioError(ValueError):
    """A scenario's file is not one; the message says where."""


@dataclass(kw_only=True)
class Load:
    """Who asks for what, while the scenario lasts."""

    rate: float = 5.0  # requests per second
    seconds: int = 40
    prompt: int = 300  # tokens at most, evenly from 1
    output: int = 60  # likewise
    timeouts: float = 0.2  # share with a deadline of 1 to 20 s
    leavers: float = 0.1  # share whose caller leaves within 3 s
    jobs: float = 0.1  # share that are items of jobs
    stream: float = 0.8  # share that stream
    guided: float = 0.1  # share whose output must not be continued by another attempt
    tenants: int = 4
    resume: Mapping[str, float] = field(default_factory=lambda: {"DEFAULT": 0.7, "RESTART": 0.2})


@dataclass(kw_only=True)
class NodeGroup:
    """Nodes of one sort."""

    count: int = 1
    mode: str = "continuous"
    slots: int = 4
    look_ahead: int = 0
    max_batch: int = 0
    resumable: bool = True
    role: str = "primary"
    models: tuple[str, ...] = ("m",)


@dataclass(kw_only=True)
class Scenario:
    """A whole scenario. Durations in files are "3s", "200ms"."""

    name: str
    about: str = ""
    seed: int = 1
    nodes: list[NodeGroup] = field(default_factory=list)
    load: Load = field(default_factory=Load)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    faults: list[Fault] = field(default_factory=list)
    storm: Storm | None = None
    heal_at: Instant = 45 * SECOND
    settle: Duration = 120 * SECOND
    floor_every: int = 8
    hedge: Hedge | None = None  # when slow attempts get a rival
    coalesce: Duration = 0  # what comes within so long is one step of the core
    policies: Callable[[], PolicySet] = build


@dataclass
class Outcome:
    """What came of a run that kept all promises."""

    log: EventLog
    metrics: Metrics
    world: World
    network: Network
    nodes: dict[str, AgentNode]
    accounts: Accounts
    drained_at: Instant


def run(
    scenario: Scenario,
    *,
    log: Sink | None = None,
    watchers: tuple[Watcher, ...] = (),
    record: RecordingFile | None = None,
) -> Outcome:
    """Run it.

    Raises:
        Broken: a promise was not kept; the message says when, and which seed.
    """
    try:
        return _run(scenario, log, watchers, record)
    except Broken as broken:
        again = f"python -m simulator {scenario.name} --seed {scenario.seed}"
        raise Broken(f"{broken} (again: {again})") from broken


def _run(
    scenario: Scenario,
    sink: Sink | None,
    watchers: tuple[Watcher, ...],
    record: RecordingFile | None,
) -> Outcome:
    queue = QueueSettings(floor_every=scenario.floor_every, no_node_grace=60 * SECOND)
    core = CoreSettings(
        seed=scenario.seed,
        queue=queue,
        failover=FailoverSettings(hedge=scenario.hedge),
        known_models=_models(scenario),
        check_every=16,
    )
    settings = WorldSettings(
        core=core,
        seed=scenario.seed,
        coalesce=scenario.coalesce,
        sample_every=NEVER,
        record=record,
    )
    world = World(settings, scenario.policies())
    log, metrics, accounts = EventLog(sink), Metrics(), Accounts()
    for watcher in (accounts, log, metrics, *watchers):
        world.watch(watcher)
    network = Network(world.agenda, scenario.network, scenario.seed)
    nodes = _start_nodes(scenario, world, network)
    trouble = Trouble(world, network, nodes)
    faults = list(scenario.faults)
    if scenario.storm is not None:
        faults += scenario.storm.draw(list(nodes), scenario.seed)
    trouble.plan(faults)
    for callers in _callers(scenario):
        Callers(world, *callers)
    world.run(until=scenario.heal_at)
    world.advance_to(scenario.heal_at)
    trouble.mend()
    drained = world.run(until=scenario.heal_at + scenario.settle)
    drained_at = world.now
    if not drained:
        late = f"{scenario.settle // SECOND} s after everything was mended"
        raise Broken(f"{world.open_requests} requests have no outcome {late}")
    world.advance_to(world.now + 15 * SECOND)  # late results, cancels, reports
    accounts.close(world)
    refused = {node_id: node.refusals for node_id, node in nodes.items() if node.refusals}
    if refused:
        raise Broken(f"nodes were sent more than they had granted: {refused}")
    return Outcome(log, metrics, world, network, nodes, accounts, drained_at)


def _models(scenario: Scenario) -> frozenset[str]:
    return frozenset(model for group in scenario.nodes for model in group.models)


def _start_nodes(scenario: Scenario, world: World, network: Network) -> dict[str, AgentNode]:
    nodes: dict[str, AgentNode] = {}
    for group in scenario.nodes:
        kind = _kind(group)
        for _ in range(group.count):
            node_id = f"n{len(nodes)}"
            nodes[node_id] = AgentNode(world, network, node_id, kind)
            nodes[node_id].start()
    return nodes


def _kind(group: NodeGroup) -> NodeKind:
    hardware = MEASURED_2023["H100-70B"]
    profile = ContinuousProfile(
        cost=hardware.cost, slots=group.slots, kv_tokens=hardware.kv_tokens, progress_every=3
    )

    def make(host: Host) -> Engine:
        if group.mode == "static":
            return StaticEngine(host, 1, affine(200 * MILLISECOND, 50 * MILLISECOND))
        return ContinuousEngine(host, profile)

    return NodeKind(
        name=group.mode,
        make=make,
        slots=group.slots,
        mode=EngineMode.STATIC if group.mode == "static" else EngineMode.CONTINUOUS,
        max_batch=group.max_batch,
        look_ahead=group.look_ahead,
        models=group.models,
        resumable=group.resumable,
        role=group.role,
    )


def _callers(scenario: Scenario) -> list[tuple[list[Arrival], Terms]]:
    """One source of streaming and one of whole answers per way to resume."""
    groups: dict[tuple[bool, str], list[Arrival]] = {}
    for arrival, stream, resume in _arrivals(scenario):
        groups.setdefault((stream, resume), []).append(arrival)
    return [
        (arrivals, Terms(stream=stream, resume=ResumeMode[resume]))
        for (stream, resume), arrivals in groups.items()
    ]


def _arrivals(scenario: Scenario) -> Iterator[tuple[Arrival, bool, str]]:
    load = scenario.load
    random = Random(f"{scenario.seed}/load")
    models = sorted(_models(scenario))
    modes = [*load.resume, "FAIL"]
    weights = [*load.resume.values(), max(0.0, 1 - sum(load.resume.values()))]
    for at in poisson(load.rate, seed=scenario.seed):
        if at >= load.seconds * SECOND:
            return
        arrival = Arrival(
            at,
            random.randint(1, load.prompt),
            random.randint(1, load.output),
            tenant=f"tenant{random.randrange(load.tenants)}",
            model=models[random.randrange(len(models))],
            priority=random.randint(1, 10),
        )
        if random.random() < load.timeouts:
            arrival.timeout = random.randint(SECOND, 20 * SECOND)
        if random.random() < load.leavers:
            arrival.cancel_after = random.randint(1, 3 * SECOND)
        if random.random() < load.jobs:
            arrival.request_class = RequestClass.JOB
        arrival.continuable = random.random() >= load.guided
        yield arrival, random.random() < load.stream, random.choices(modes, weights)[0]


# Reading files.


def names() -> list[str]:
    """The bundled scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def load(source: str | Path) -> Scenario:
    """A bundled scenario by name, or a file.

    Raises:
        ScenarioError: it is none.
    """
    path = SCENARIOS / f"{source}.yaml"
    if not path.is_file():
        path = Path(source)
    if not path.is_file():
        raise ScenarioError(
            f"no scenario {str(source)!r}: name a file or one of {', '.join(names())}"
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as fault:
        raise ScenarioError(f"{path.name} is not YAML: {fault}") from fault
    if not isinstance(content, dict):
        raise ScenarioError(f"{path.name} holds no scenario")
    try:
        return _scenario({"name": path.stem, **content})
    except (TypeError, ValueError, KeyError) as fault:
        raise ScenarioError(f"{path.name}: {fault}") from fault


def _scenario(content: dict[str, Any]) -> Scenario:
    """Unknown keys are refused by the constructors."""
    groups = [NodeGroup(**{**g, "models": tuple(g.get("models", ("m",)))})
              for g in content.pop("nodes")]  # fmt: skip
    faults = [Fault(**_durations(f, "at", "lasts", "leap")) for f in content.pop("faults", ())]
    network = NetworkOptions(
        **_durations(content.pop("network", {}), "delay", "stall_for", "notice", "keepalive")
    )
    plain = _durations(content, "heal_at", "settle", "coalesce")
    heal_at = plain.get("heal_at", Scenario.heal_at)
    storm = plain.pop("storm", None)
    if storm is not None:
        every = {kind: duration(value) for kind, value in storm["every"].items()}
        lasts = tuple(duration(value) for value in storm.get("lasts", ("200ms", "8s")))
        storm = Storm(every=every, lasts=(lasts[0], lasts[1]), until=heal_at)
    load = Load(**plain.pop("load", {}))
    hedge = plain.pop("hedge", None)
    if hedge is not None:
        plain["hedge"] = Hedge(**_durations(hedge, "least_delay"))
    return Scenario(nodes=groups, faults=faults, network=network, storm=storm, load=load, **plain)


def _durations(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {n: duration(v) if n in names else v for n, v in values.items()}


def duration(text: str) -> Duration:
    """ "200ms", "1.5s", "2m", "1h".

    Raises:
        ScenarioError: it is none.
    """
    for unit in ("ms", "s", "m", "h"):
        number = str(text).removesuffix(unit)
        if number != str(text):
            try:
                return round(float(number) * _UNITS[unit])
            except ValueError:
                break
    raise ScenarioError(f"{text!r} is not a duration as 200ms, 3s, 2m or 1h")
