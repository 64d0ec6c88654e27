"""What can be configured about an agent?

One file, `agent.yaml`. Units are in the values ("3s", "64MiB"), unknown keys are errors. Kinds of
engines check their own options. Where values come from, and in which order: `config_sources.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from service_kit.config_faults import Finding
from service_kit.config_sections import LogSection, Section
from service_kit.loopback import dials_loopback, is_loopback
from service_kit.units import DurationS, PositiveDurationS

ID = r"[A-Za-z0-9._:-]{1,64}"
OPEN_STRING = r"[a-z0-9_]{1,64}"
ADDRESS = re.compile(r"(unix:.+|(dns:///?)?(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5}))")
TASK_TYPE_ALIASES = {
    "summary": "summarization",
    "qa": "question_answering",
    "code": "code_generation",
}


def _address(value: str) -> str:
    match = ADDRESS.fullmatch(value)
    if match is None or int(match[4] or 0) > 65535:
        raise ValueError('is not an address: write host:port, as "127.0.0.1:7612"')
    return value


def _listen(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value
    if ADDRESS.fullmatch(value) is None or value.startswith(("unix:", "dns:")):
        raise ValueError('is not where one can listen: write host:port, as "127.0.0.1:7614"')
    return _address(value)


def _money(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d{1,9})(?:\.(\d{1,6}))?\s+([A-Z]{3})", value.strip())
    if match is None:
        raise ValueError('is not a price: write an amount and a currency, as "2.50 USD"')
    micros = int(match[1]) * 1_000_000 + int((match[2] or "").ljust(6, "0"))
    return {"currency": match[3], "micros": micros}


Address = Annotated[str, Field(max_length=253), BeforeValidator(_address)]


class Price(Section):
    """Money, as "2.50 USD"."""

    currency: str = Field(pattern=r"^[A-Z]{3}$")
    """ISO 4217, three letters."""
    micros: int = Field(ge=0)
    """Millionths of the unit."""


class TlsSection(Section):
    """Encryption towards the scheduler. The files are read again at each dial."""

    enabled: Annotated[bool, Field(strict=True)] = False
    """On by itself with any key below; alone, it trusts the machine's own authorities."""
    authority: Path | None = None
    """Who signs the scheduler's certificate, PEM."""
    certificate: Path | None = None
    """The agent's certificate and its chain, PEM; the node id in it is the agent's."""
    key: Path | None = None
    """Its private key, PEM, readable by its owner only."""
    server_name: str = Field(default="", max_length=253)
    """Name that the scheduler's certificate must have. Empty: that of the address."""

    @property
    def is_on(self) -> bool:
        """Whether anything is encrypted."""
        files = (self.authority, self.certificate, self.key)
        return self.enabled or any(path is not None for path in files)

    @model_validator(mode="after")
    def _paired(self) -> TlsSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate: and key belong together; set both or none")
        return self


class SchedulerSection(Section):
    """Where the scheduler is."""

    address: Address = "127.0.0.1:7612"
    """The scheduler's port for nodes, host:port."""
    redirects: tuple[Address, ...] = ()
    """Other schedulers that a goodbye may send this agent to. Empty: none."""
    tls: TlsSection = TlsSection()
    """Encryption. Addresses of other machines need it, or `insecure`."""
    token_file: Path | None = None
    """Holds the join token, readable by its owner only. Absent: none."""
    insecure: Annotated[bool, Field(strict=True)] = False
    """Dial others than loopback in plain text: only inside a network that encrypts."""


class ReconnectSection(Section):
    """How long to wait before the next try when the scheduler is away."""

    first: PositiveDurationS = 0.2
    """Upper bound of the first wait; doubled at each failure. The wait is random below it."""
    longest: PositiveDurationS = 5.0
    """Upper bound of any wait."""
    welcome_timeout: PositiveDurationS = 10.0
    """How long a scheduler may take to answer a Hello."""

    @model_validator(mode="after")
    def _ordered(self) -> ReconnectSection:
        if self.first > self.longest:
            raise ValueError("first: is longer than longest")
        return self


class ModelsSection(Section):
    """Models that are loaded and unloaded while the agent works (`batchyard models load`)."""

    load_timeout: PositiveDurationS = 600.0
    """Until a model must have answered its first request, or its engine let go of one that is to
    be unloaded; then it is given up."""
    unload_grace: DurationS = 60.0
    """For what runs on a model that is to be unloaded; then it goes back to the scheduler."""


class MetricsSection(Section):
    """Metrics for Prometheus, at /metrics of a port of their own."""

    listen: Annotated[str, Field(max_length=253), BeforeValidator(_listen)] = ""
    """Where, host:port, as 127.0.0.1:7614; port 0: any free one. Empty: nowhere."""
    insecure: Annotated[bool, Field(strict=True)] = False
    """Listen on others than loopback, in plain text and to whoever asks: only inside a network that
    can be trusted. Metrics name the node and its models; prompts and outputs are not in them."""

    @property
    def host(self) -> str:
        """Of `listen`."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Of `listen`."""
        return int(self.listen.rpartition(":")[2])


class EngineSection(BaseModel):
    """An engine. All keys but `id` and `kind` are options of its kind."""

    model_config = ConfigDict(
        extra="allow", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    id: str = Field(default="", pattern=f"^({ID})?$")
    """Unique on the node and stable across restarts. Empty: the kind; of several engines of a kind,
    the kind and its port, else the kind and a number from 2 on."""
    kind: str = Field(pattern=f"^{OPEN_STRING}$")
    """"simulated", "llamacpp", "openai", "python", ..."""

    @property
    def engine_id(self) -> str:
        """The id, or what stands for it."""
        return self.id or self.kind

    @property
    def options(self) -> dict[str, Any]:
        """What the kind itself must understand."""
        return dict(self.model_extra or {})


class AgentConfig(Section):
    """All of `agent.yaml`."""

    version: Literal[1] = 1
    """Of the file's form."""
    node_id: str = Field(default="", pattern=f"^({ID})?$")
    """Stable name of this node. Empty: that of its certificate, else host name and the engine's
    port, else a short digest of the engines and the GPUs that this process may see, with a number
    behind it where another agent of this host has the same."""
    scheduler: SchedulerSection = SchedulerSection()
    pool: str = Field(default="", max_length=64)
    """Pool that the operator assigns. Empty: by models."""
    role: Literal["primary", "backup"] = "primary"
    """A backup works only while no primary of its pool can."""
    zone: str = Field(default="", max_length=64)
    """Failure zone. Empty: none."""
    labels: dict[str, str] = Field(default_factory=dict)
    """For people and filters; at most 16."""
    task_types: tuple[str, ...] = ()
    """Served here. Empty: all."""
    price_per_hour: Annotated[Price | None, BeforeValidator(_money)] = None
    """Of the whole node, as "2.50 USD". Absent: unknown."""
    drain_grace: DurationS = 30.0
    """On SIGTERM or SIGINT: time for running work to finish; then it goes back."""
    reconnect: ReconnectSection = ReconnectSection()
    models: ModelsSection = ModelsSection()
    engines: tuple[EngineSection, ...] = Field(min_length=1)
    """At least one."""
    metrics: MetricsSection = MetricsSection()
    log: LogSection = LogSection()

    @field_validator("task_types")
    @classmethod
    def _canonical(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if re.fullmatch(OPEN_STRING, value) is None:
                raise ValueError(f'"{value}" is not lower_snake_case of 1 to 64 characters')
        return tuple(TASK_TYPE_ALIASES.get(value, value) for value in values)

    @field_validator("labels")
    @classmethod
    def _few_and_short(cls, labels: dict[str, str]) -> dict[str, str]:
        if len(labels) > 16:
            raise ValueError(f"has {len(labels)} labels; at most 16 are allowed")
        for key, value in labels.items():
            if not 1 <= len(key) <= 63 or len(value) > 256:
                raise ValueError(f'"{key[:63]}": keys have 1 to 63 characters, values at most 256')
        return labels

    @field_validator("engines")
    @classmethod
    def _named_once(cls, engines: tuple[EngineSection, ...]) -> tuple[EngineSection, ...]:
        engines = _with_ids(engines)
        ids = [engine.engine_id for engine in engines]
        twice = sorted({engine_id for engine_id in ids if ids.count(engine_id) > 1})
        if twice:
            raise ValueError(f"two engines have the id {twice[0]!r}: give each an `id` of its own")
        return engines


def _with_ids(engines: tuple[EngineSection, ...]) -> tuple[EngineSection, ...]:
    """Engines of one kind told apart, where nobody named them."""
    named = {engine.id for engine in engines}  # membership only
    made: list[EngineSection] = []
    for engine in engines:
        alike = [e for e in engines if e.kind == engine.kind and not e.id]
        if engine.id or len(alike) == 1:
            made.append(engine)
            continue
        ports = [_port(each.options) for each in alike]
        if all(ports) and len(set(ports)) == len(ports):
            engine_id = f"{engine.kind}-{_port(engine.options)}"
        else:
            place = next(i for i, each in enumerate(alike) if each is engine)
            engine_id = f"{engine.kind}-{place + 1}" if place else engine.kind
        if engine_id not in named:
            engine = engine.model_copy(update={"id": engine_id})
        made.append(engine)
    return tuple(made)


def exposure(config: AgentConfig) -> Iterator[Finding]:
    """Prompts and tokens leave this machine encrypted, or not at all; metrics where it is said."""
    scheduler, metrics = config.scheduler, config.metrics
    if metrics.listen and not metrics.insecure and not is_loopback(metrics.host):
        yield Finding(
            ("metrics.listen",),
            f"{metrics.listen} can be reached from other machines, and anybody there could read "
            "the metrics: listen on 127.0.0.1, or say metrics.insecure inside a network that can "
            "be trusted",
        )
    if scheduler.insecure or scheduler.tls.is_on:
        return
    for address in (scheduler.address, *scheduler.redirects):
        if not dials_loopback(address):
            yield Finding(
                ("scheduler.address", "scheduler.tls.authority"),
                f"{address} is not on this machine, and nothing would be encrypted: set "
                "scheduler.tls.authority (and certificate and key, or token_file), or say "
                "--insecure (scheduler.insecure) inside a network that can be trusted",
            )


def default_node_id(
    config: AgentConfig, hostname: str, config_path: str, visible: Sequence[str] = ()
) -> str:
    """Host name and a suffix that is stable across restarts of the same agent. `visible`: the GPUs
    that its process may see, as the environment names them.
    """
    host = re.sub(r"[^A-Za-z0-9._-]", "-", hostname.split(".")[0])[:48] or "node"
    port = engine_port(config)
    if port:
        return f"{host}-{port}"
    engines = [[engine.engine_id, engine.kind, engine.options] for engine in config.engines]
    told = [config_path, engines, *visible]
    text = json.dumps(told, sort_keys=True, default=str)
    return f"{host}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def engine_port(config: AgentConfig) -> int:
    """The port of the first engine that has one of its own; 0: none has."""
    return next((port for e in config.engines if (port := _port(e.options))), 0)


def _port(options: dict[str, Any]) -> int:
    """The port at which an engine is reached; 0: it has none of its own."""
    port = options.get("port")
    if isinstance(port, int) and port > 0:
        return port
    for key in ("address", "url", "base_url"):
        text = options.get(key)
        if isinstance(text, str):
            try:
                return urlsplit(text if "//" in text else f"//{text}").port or 0
            except ValueError:
                return 0
    return 0
