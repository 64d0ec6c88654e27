"""What can be configured about the scheduler?

One file, `scheduler.yaml`. Units are in the values ("3s", "64MiB"), unknown keys are errors. Where
values come from and in which order: `config_sources.py`; what must hold between them:
`config_checks.py`. The core and the edge get plain values from the methods below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from scheduler_service import policies
from scheduler_service.config_failover import (
    FailoverSection,
    HedgingSection,
    ModelName,
    TimeoutsSection,
    failover_settings,
)
from scheduler_service.config_jobs import JobsSection
from scheduler_service.config_policies import read_options, scale_options
from scheduler_service.config_recording import RecordingSection
from scheduler_service.config_security import (
    AbuseSection,
    AuthSection,
    TenantsSection,
    TlsSection,
)
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import (
    AutoscaleSettings,
    CoreSettings,
    FailoverSettings,
    HealthSettings,
    QueueSettings,
)
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND
from scheduler_service.policies.task_types import DEFAULT_PRIORITY, TaskDefaults, TaskTypes
from service_kit.addresses import bare
from service_kit.config_sections import LogSection, Section
from service_kit.units import DurationNs, PositiveDurationNs, SizeBytes

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

Port = Annotated[int, Field(strict=True, ge=0, le=65535)]
Count = Annotated[int, Field(strict=True, ge=0)]
PositiveCount = Annotated[int, Field(strict=True, ge=1)]
Weight = Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Flag = Annotated[bool, Field(strict=True)]


def _named(value: object) -> object:
    """Just a name stands for {name: it}."""
    return {"name": value} if isinstance(value, str) else value


class ListenSection(Section):
    """Where the scheduler listens. A port of 0 takes any that is free; the gRPC services may share
    one."""

    host: Annotated[str, BeforeValidator(bare)] = Field(default="127.0.0.1", min_length=1)
    """Address to bind. Others than loopback need `tls` and `auth`, or `insecure`."""
    insecure: Flag = False
    """Bind other addresses than loopback though callers are not authenticated or nothing is
    encrypted: only inside a network that does both."""
    client_port: Port = 7611
    """For clients: `SchedulerService`, health and reflection."""
    node_port: Port = 7612
    """For node agents: `NodeService`."""
    admin_port: Port = 7613
    """For operators: `AdminService`."""
    http_port: Port = 7610
    """For `/healthz` and `/readyz`."""


class HttpSection(Section):
    """What the HTTP port answers."""

    ready_needs_node: Flag = False
    """Whether `/readyz` says no while no node can serve. On, a rollout waits for agents; off,
    clients may queue their first requests before any agent is up."""
    jaeger_url: Annotated[str, Field(max_length=1000, pattern=r"^(https?://[^\s]+)?$")] = ""
    """Where people open traces, as "http://127.0.0.1:16686": the dashboard links there. Empty: it
    shows trace ids only."""


class LimitsSection(Section):
    """What one caller may ask for."""

    max_request_bytes: SizeBytes = 4 << 20
    """Of one request; a larger one alone gets REQUEST_TOO_LARGE."""
    max_message_bytes: SizeBytes = 64 << 20
    """Of one gRPC message, which may carry many requests; a larger one ends its stream."""
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=90)] = 64
    """Nesting of JSON texts in a request (tools, schemas, engine options)."""
    max_timeout: PositiveDurationNs = 24 * HOUR
    """Longer timeouts are cut to this."""
    max_detach_grace: DurationNs = 60 * SECOND
    """Longest time that work goes on after its caller left, where the call asks for it."""
    max_outstanding: PositiveCount = 10_000
    """Calls without a result on one Multiplex stream; more are answered QUEUE_FULL."""
    max_output_buffer: SizeBytes = 1 << 20
    """Output of one call that its reader has not taken; above it the call ends with
    CLIENT_TOO_SLOW. It is judged by bytes alone, not by how long they wait: an engine that gives
    many MB at once is faster than some readers, for which this has to hold the largest such
    answer."""


class QueueSection(Section):
    """Bounds of the queues."""

    max_requests: PositiveCount = 10_000
    """Interactive requests that may wait per pool, beyond what free slots take at once; more are
    refused with QUEUE_FULL."""
    max_bytes: SizeBytes = 1 << 30
    """Of all waiting requests together."""
    floor_every: Count = 8
    """Of so many consecutive dispatches of a pool one goes to the oldest request that the order
    passed over, so that nothing starves. 0: off."""
    headroom: Count = 0
    """Free slots of a pool that job items leave to interactive requests."""
    weights: dict[str, Weight] = Field(default_factory=dict)
    """Shares of tenants (of `user_id` where no tenant is known) that wait with equal priority; 1
    where not named. With `{gold: 3}` gold gets three times as much as any other."""
    learn_lengths: Flag = False
    """Expect of an output no more than 90 % of this tenant's outputs of this model had, where that
    is less than the request allows: more fit into the memory of an engine that counts tokens."""
    no_node_grace: DurationNs = 30 * SECOND
    """How long a request waits for a first live node of its model before NO_CAPACITY; where the
    autoscaler asks for one within this time, `autoscale.start_timeout` longer at most."""


class HealthSection(Section):
    """When a node is no longer trusted, and how agents report."""

    session_timeout: PositiveDurationNs = 3 * SECOND
    """Silence that makes a node SUSPECT: no new work."""
    resume_window: PositiveDurationNs = 2 * SECOND
    """From SUSPECT to LOST: its work is run elsewhere."""
    heartbeat_interval: PositiveDurationNs = 1 * SECOND
    """How often an idle agent gives a sign of life."""
    report_interval: PositiveDurationNs = 1 * SECOND
    """How often an agent reports what really runs."""
    coalesce: DurationNs = 5 * MILLISECOND
    """How long an agent may gather output into one message under load."""
    ping_timeout: PositiveDurationNs = 1 * SECOND
    """For the holder of a node id that a newcomer claims to answer."""
    lost_memory: DurationNs = 10 * MINUTE
    """How long a lost node is still shown."""
    refused_pause: DurationNs = 100 * MILLISECOND
    """How long an engine that refused work is left alone."""
    eject_base: PositiveDurationNs = 30 * SECOND
    """An outlier gets no new work for this long, times the number of its ejections."""
    eject_max: PositiveDurationNs = 5 * MINUTE
    """The longest that it is out."""
    eject_share: Share = 0.1
    """Of a pool's nodes so many may be out as outliers at once; one always may."""
    keep_share: Share = 0.5
    """No outlier is taken out if less than this share of the pool would be left."""
    warm_up: DurationNs = 30 * SECOND
    """Time in which a node that was out goes from a quarter of its slots to all of them."""
    warm_up_new: DurationNs = 0
    """Likewise for a node that joins a pool which has others. 0: it has all of its slots at once;
    requests wait at the scheduler, so a new node is not flooded with a backlog."""


class PolicyChoice(Section):
    """A policy by name, with its own options. Just the name will do."""

    name: str = Field(min_length=1)
    """One of the policies that answer the question; see the table below."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of that policy. Empty: its defaults."""


Choice = Annotated[PolicyChoice, BeforeValidator(_named)]


class PoliciesSection(Section):
    """Which policy answers which question."""

    order: Choice = PolicyChoice(name=policies.DEFAULTS["order"])
    """Which waiting request goes next?"""
    order_by_model: dict[ModelName, Choice] = Field(default_factory=dict)
    """The same for models that have an order of their own."""
    preempt: Choice = PolicyChoice(name=policies.DEFAULTS["preempt"])
    """From when on may a running job item be stopped for an interactive request?"""
    admission: Choice = PolicyChoice(name=policies.DEFAULTS["admission"])
    """May a request enter, or is it refused at once?"""
    batch: Choice = PolicyChoice(name=policies.DEFAULTS["batch"])
    """Is a static batch sent now, or later?"""
    score: Choice = PolicyChoice(name=policies.DEFAULTS["score"])
    """How soon would a request finish on a node?"""
    pick: Choice = PolicyChoice(name=policies.DEFAULTS["pick"])
    """Which of the scored nodes takes it?"""
    degrade: Choice = PolicyChoice(name=policies.DEFAULTS["degrade"])
    """Which of the permitted models stands in, if any?"""
    failover: Choice = PolicyChoice(name=policies.DEFAULTS["failover"])
    """Is a failed attempt tried again, and when? Its times are in the section `failover`."""
    autoscale: Choice = PolicyChoice(name=policies.DEFAULTS["autoscale"])
    """How many nodes should a pool have? Its thresholds are in the section `autoscale`."""
    health: Choice = PolicyChoice(name=policies.DEFAULTS["health"])
    """Is a node an outlier? What follows is in the section `health`."""


class TaskTypeSection(Section):
    """Defaults of one task type; what a request says itself always wins."""

    model: ModelName | None = None
    """Model of requests that name none. Absent: they must name one."""
    priority: Annotated[int, Field(strict=True, ge=1, le=10)] = DEFAULT_PRIORITY
    """1..10, 10 = most urgent."""
    max_wait: DurationNs | None = None
    """Longest time in the queue. Absent: no limit."""
    timeout: PositiveDurationNs | None = None
    """Total time from receipt to the last token. Absent: no limit."""
    degrade: tuple[ModelName, ...] = Field(default=(), max_length=8)
    """Models that may stand in, in this order. Empty: none."""
    expected_output_tokens: PositiveCount | None = None
    """Tokens that a request without a limit of its own probably needs. Absent: unknown."""


BUILT_IN_TASK_TYPES: Final[dict[str, dict[str, Any]]] = {
    "summarization": {"priority": 4, "expected_output_tokens": 200},
    "classification": {"priority": 6, "expected_output_tokens": 8},
    "question_answering": {"priority": 6, "expected_output_tokens": 150},
    "code_generation": {"priority": 5, "expected_output_tokens": 500},
    "chat": {"priority": 6, "expected_output_tokens": 250},
    "embedding": {"priority": 4},
    "other": {"priority": DEFAULT_PRIORITY},
}


def _over_built_in(value: object) -> object:
    """What the file says of a built-in task type is laid over it, key by key."""
    if not isinstance(value, dict):
        return value
    merged: dict[Any, Any] = {**BUILT_IN_TASK_TYPES, **value}
    for name, built_in in BUILT_IN_TASK_TYPES.items():
        if isinstance(merged[name], dict):
            merged[name] = {**built_in, **merged[name]}
    return merged


def _built_in() -> dict[str, TaskTypeSection]:
    return {name: TaskTypeSection(**given) for name, given in BUILT_IN_TASK_TYPES.items()}


class ModelSection(Section):
    """A model that is accepted before any node has it. Just the name will do."""

    name: ModelName
    """Public name, as clients and agents write it."""
    aliases: tuple[ModelName, ...] = ()
    """Other names that clients may use for it."""


def _as_rung(value: object) -> object:
    """Just a name stands for {model: it}."""
    return {"model": value} if isinstance(value, str) else value


class RungSection(Section):
    """A model on a ladder. Just the name will do."""

    model: ModelName
    """Public name, or an alias."""
    quality: Share = 1.0
    """0..1, against the best of its family; requests may ask for a least quality."""


Rung = Annotated[RungSection, BeforeValidator(_as_rung)]


class ProcessActuatorSection(Section):
    """The actuator `process`: starts and drains agents on this machine."""

    agent_config: Path | None = None
    """The `agent.yaml` that they run with."""


class AutoscaleSection(Section):
    """When nodes are started and drained."""

    enabled: Flag = False
    """Off: pools keep the nodes that join by themselves."""
    actuator: Literal["none", "process", "command"] = "none"
    """Who carries it out. "none": decisions are only shown."""
    min: Count = 1
    """Nodes per pool at least."""
    max: PositiveCount = 4
    """Nodes per pool at most."""
    tick: PositiveDurationNs = 1 * SECOND
    """How often pools are looked at."""
    queue: PositiveCount = 5
    """Scale out when so many interactive requests of a pool wait."""
    wait: PositiveDurationNs = 3 * SECOND
    """Scale out when the oldest waits longer than this."""
    cooldown_out: DurationNs = 10 * SECOND
    """Least time between two steps out."""
    idle: PositiveDurationNs = 60 * SECOND
    """Scale in after nothing waited or ran for this long."""
    cooldown_in: DurationNs = 10 * SECOND
    """Least time from any step to a step in."""
    start_timeout: PositiveDurationNs = 120 * SECOND
    """A node that was asked for and has not joined after this long counts no more."""
    drain_grace: DurationNs = 60 * SECOND
    """For a node on its way out to finish what runs."""
    cold_start: DurationNs = 30 * SECOND
    """From asking for a node to its hello, until one was measured; for the policy `law`."""
    min_spare: Count = 0
    """Nodes that the policy `law` keeps beyond the need, for growth while others start."""
    process: ProcessActuatorSection = ProcessActuatorSection()
    """For the actuator "process"."""
    command: tuple[str, ...] = ()
    """For the actuator "command": program and arguments; it is given the desired count as JSON on
    standard input. What it leaves running needs a log of its own (`2>>agent.log`): the standard
    error that it is given breaks when the scheduler ends."""


class ReportSection(Section):
    """What the report remembers."""

    window: PositiveDurationNs = 5 * MINUTE
    """What rates, averages, costs and the diagnosis look at, unless a caller asks for another."""
    memory: PositiveDurationNs = 60 * MINUTE
    """The longest that a caller may ask for. Beyond `window` figures are kept by ten seconds."""
    events: PositiveCount = 10_000
    """Events kept of the kinds that every request or job may cause (submit, dispatch_batch,
    batch_finished, rejected, cancelled, expired, failed, job_...), and as many of all others."""
    finished_requests: PositiveCount = 10_000
    """Finished requests that can still be listed."""


class RequestLogSection(LogSection):
    """Logging, to standard error."""

    requests: Annotated[int, Field(ge=0, le=1_000)] = 10
    """Lines a second about requests that ended, at level info; how many were left out is told. 0:
    none."""


class SchedulerConfig(Section):
    """All of `scheduler.yaml`."""

    version: Literal[1] = 1
    """Of the file's form."""
    listen: ListenSection = ListenSection()
    http: HttpSection = HttpSection()
    state_dir: Path | None = None
    """Folder that holds the cluster id and the term, which grows at each start, so that agents
    hand back running work to a restarted scheduler, and the store of jobs. Absent: a new cluster at
    each start, and no jobs."""
    shutdown_grace: DurationNs = 10 * SECOND
    """On SIGTERM or SIGINT: time for open calls to finish; then they end with UNAVAILABLE."""
    tls: TlsSection = TlsSection()
    auth: AuthSection = AuthSection()
    limits: LimitsSection = LimitsSection()
    jobs: JobsSection = JobsSection()
    tenants: TenantsSection = TenantsSection()
    abuse: AbuseSection = AbuseSection()
    queue: QueueSection = QueueSection()
    health: HealthSection = HealthSection()
    failover: FailoverSection = FailoverSection()
    timeouts: TimeoutsSection = TimeoutsSection()
    hedging: HedgingSection = HedgingSection()
    policies: PoliciesSection = PoliciesSection()
    task_types: Annotated[dict[str, TaskTypeSection], BeforeValidator(_over_built_in)] = Field(
        default_factory=_built_in
    )
    """Defaults by task type, laid over the built-in ones; more may be added."""
    models: tuple[Annotated[ModelSection, BeforeValidator(_named)], ...] = ()
    """Known models. With any listed, task types may only name listed ones."""
    ladders: dict[str, tuple[Rung, ...]] = Field(default_factory=dict)
    """By family: its models, the best first. A request that permits it (`degrade.use_ladder`) may
    be served by one further down than the model that it asks for."""
    default_model: ModelName | None = None
    """For requests that name no model and whose task type has none."""
    autoscale: AutoscaleSection = AutoscaleSection()
    report: ReportSection = ReportSection()
    recording: RecordingSection = RecordingSection()
    log: RequestLogSection = RequestLogSection()

    def core_settings(
        self, *, term: int, nodes_before: frozenset[str] = frozenset()
    ) -> CoreSettings:
        """The core's settings, for this term of the scheduler. `nodes_before`: those that the last
        one had, which may come back with work.
        """
        health = self.health
        return CoreSettings(
            term=term,
            queue=QueueSettings(**self.queue.values()),
            health=HealthSettings(
                session_timeout=health.session_timeout,
                resume_window=health.resume_window,
                ping_timeout=health.ping_timeout,
                lost_memory=health.lost_memory,
                refused_pause=health.refused_pause,
                eject_base=health.eject_base,
                eject_max=health.eject_max,
                eject_share=health.eject_share,
                keep_share=health.keep_share,
                warm_up=health.warm_up,
                warm_up_new=health.warm_up_new,
            ),
            failover=self._failover_settings(),
            autoscale=self._autoscale_settings(),
            known_models=frozenset(model.name for model in self.models),
            recovery_window=self.failover.recovery_window,
            nodes_before=nodes_before,
            finished_memory=self.report.finished_requests,
        )

    def _failover_settings(self) -> FailoverSettings:
        return failover_settings(self.failover, self.timeouts, self.hedging, self.aliases())

    def _autoscale_settings(self) -> AutoscaleSettings:
        scale = self.autoscale
        return AutoscaleSettings(
            enabled=scale.enabled,
            min_nodes=scale.min,
            max_nodes=scale.max,
            tick=scale.tick,
            start_timeout=scale.start_timeout,
            drain_grace=scale.drain_grace,
            cold_start=scale.cold_start,
            min_spare=scale.min_spare,
        )

    def policy_set(self, *, seed: int = 0) -> PolicySet:
        """The policies in force."""
        names: dict[str, str] = {}
        options: dict[str, dict[str, Any]] = {}
        chosen = self.policies.values()
        own_orders = chosen.pop("order_by_model")
        for question, choice in chosen.items():
            names[question] = choice.name
            options[question] = read_options(question, choice.name, choice.options)
        if names["failover"] == "backoff":
            options["failover"] |= {"settings": self._failover_settings(), "seed": seed}
        for key in scale_options(names["autoscale"]):
            options["autoscale"][key] = getattr(self.autoscale, key)
        orderings = {
            self.aliases().get(model, model): policies.make(
                "order", choice.name, **read_options("order", choice.name, choice.options)
            )
            for model, choice in own_orders.items()
        }
        return policies.build(names, options, orderings)

    def task_defaults(self) -> TaskTypes:
        """What the edge fills in by task type, aliases of models resolved."""
        aliases = self.aliases()
        fallback = self.default_model or ""
        default = aliases.get(fallback, fallback)
        return TaskTypes(
            {
                name: TaskDefaults(
                    model=aliases.get(given.model or "", given.model or "") or default,
                    priority=given.priority,
                    max_wait=NEVER if given.max_wait is None else given.max_wait,
                    timeout=NEVER if given.timeout is None else given.timeout,
                    degrade=tuple(aliases.get(model, model) for model in given.degrade),
                    output_tokens=given.expected_output_tokens or 0,
                )
                for name, given in self.task_types.items()
            },
            TaskDefaults(model=default),
            self._ladders(),
        )

    def _ladders(self) -> dict[str, tuple[tuple[str, float], ...]]:
        """What is below each model on its ladder, aliases resolved."""
        aliases = self.aliases()
        below: dict[str, tuple[tuple[str, float], ...]] = {}
        for rungs in self.ladders.values():
            named = [(aliases.get(rung.model, rung.model), rung.quality) for rung in rungs]
            for number, (model, _) in enumerate(named):
                below[model] = tuple(named[number + 1 :])
        return below

    def aliases(self) -> dict[str, str]:
        """Model names by alias."""
        return {alias: model.name for model in self.models for alias in model.aliases}
