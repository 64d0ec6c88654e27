"""What must hold between configured values? Each check names the values that it compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from scheduler_service.config import SchedulerConfig
from scheduler_service.config_policies import faults
from scheduler_service.policies.task_types import ALIASES
from service_kit.config_faults import Finding, did_you_mean
from service_kit.loopback import is_loopback
from service_kit.units import write_duration, write_size

OPEN_STRING: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def find(config: SchedulerConfig) -> Iterator[Finding]:
    """All contradictions of a configuration whose single values are valid."""
    for check in _CHECKS:
        yield from check(config)


def _ports(config: SchedulerConfig) -> Iterator[Finding]:
    """The gRPC services may share a port; HTTP cannot."""
    listen = config.listen
    for name in ("client_port", "node_port", "admin_port"):
        if listen.http_port and listen.http_port == getattr(listen, name):
            paths = ("listen.http_port", f"listen.{name}")
            yield Finding(paths, f"is {listen.http_port}, as {name}: HTTP needs a port of its own")


def _exposure(config: SchedulerConfig) -> Iterator[Finding]:
    """Behind other addresses than loopback are strangers: not in plain text, not unknown."""
    listen = config.listen
    if listen.insecure or is_loopback(listen.host):
        return
    fix = "or say --insecure (listen.insecure) inside a network that can be trusted"
    if config.tls.certificate is None:
        yield Finding(
            ("listen.host", "tls.certificate"),
            f"{listen.host} is no loopback address, and nothing would be encrypted: set "
            f"tls.certificate and tls.key (`batchyard certs init` makes them), {fix}",
        )
    if config.auth.file is None:
        yield Finding(
            ("listen.host", "auth.file"),
            f"{listen.host} is no loopback address, and everybody could do everything: set "
            f"auth.file (`batchyard tokens create` makes it), {fix}",
        )


def _tls(config: SchedulerConfig) -> Iterator[Finding]:
    tls = config.tls
    for one, other in (("certificate", "key"), ("key", "certificate"), ("authority", "key")):
        if getattr(tls, one) is not None and getattr(tls, other) is None:
            yield Finding((f"tls.{one}", f"tls.{other}"), f"needs tls.{other}, too")
    if tls.client_certificates and tls.authority is None:
        yield Finding(
            ("tls.client_certificates", "tls.authority"), "needs tls.authority, who signs them"
        )
    agents = tls.agent_certificates and tls.authority is not None
    ports = config.listen
    for name in ("client_port", "admin_port"):
        shared = ports.node_port and ports.node_port == getattr(ports, name)
        if shared and agents != tls.client_certificates:
            yield Finding(
                (f"listen.{name}", "listen.node_port", "tls.client_certificates"),
                "is the node_port, and one port asks all its callers for a certificate or none: "
                "give agents a port of their own, or set tls.client_certificates",
            )


def _jobs(config: SchedulerConfig) -> Iterator[Finding]:
    jobs = config.jobs
    if jobs.ttl > jobs.max_ttl:
        yield Finding(
            ("jobs.ttl", "jobs.max_ttl"),
            f"is {write_duration(jobs.ttl)}, longer than max_ttl, which is "
            f"{write_duration(jobs.max_ttl)}",
        )


def _limits(config: SchedulerConfig) -> Iterator[Finding]:
    limits = config.limits
    if limits.max_request_bytes >= limits.max_message_bytes:
        yield Finding(
            ("limits.max_request_bytes", "limits.max_message_bytes"),
            f"is {write_size(limits.max_request_bytes)}, not below max_message_bytes, which is "
            f"{write_size(limits.max_message_bytes)}",
        )
    if limits.max_message_bytes >= 1 << 31:
        yield Finding(("limits.max_message_bytes",), "must be below 2GiB, gRPC's own limit")


def _heartbeats(config: SchedulerConfig) -> Iterator[Finding]:
    health = config.health
    for name in ("heartbeat_interval", "report_interval"):
        interval: int = getattr(health, name)
        if health.session_timeout <= 2 * interval:
            yield Finding(
                ("health.session_timeout", f"health.{name}"),
                f"is {write_duration(health.session_timeout)}; it must be above twice the {name}, "
                f"which is {write_duration(interval)}, or healthy nodes look silent",
            )


def _backoff(config: SchedulerConfig) -> Iterator[Finding]:
    if config.failover.backoff_base > config.failover.backoff_max:
        yield Finding(
            ("failover.backoff_base", "failover.backoff_max"), "is longer than backoff_max"
        )


def _autoscale(config: SchedulerConfig) -> Iterator[Finding]:
    scale = config.autoscale
    if scale.min > scale.max:
        yield Finding(
            ("autoscale.min", "autoscale.max"), f"is {scale.min}, above max, which is {scale.max}"
        )
    if scale.enabled and scale.actuator == "process" and scale.process.agent_config is None:
        yield Finding(
            ("autoscale.process.agent_config", "autoscale.actuator"),
            "is needed by the actuator process: name the agent.yaml to start agents with",
        )
    if scale.enabled and scale.actuator == "command" and not scale.command:
        yield Finding(
            ("autoscale.command", "autoscale.actuator"),
            "is needed by the actuator command: write the program and its arguments as a list",
        )


def _policies(config: SchedulerConfig) -> Iterator[Finding]:
    chosen = config.policies.values()
    own_orders = chosen.pop("order_by_model")
    choices = [(question, question, choice) for question, choice in chosen.items()]
    choices += [(f"order_by_model.{model}", "order", c) for model, c in own_orders.items()]
    for place, question, choice in choices:
        for path, text in faults(question, choice.name, choice.options):
            yield Finding((f"policies.{place}.{path}",), text)


def _names(config: SchedulerConfig) -> Iterator[Finding]:
    """Behaviour 98: no name stands for two models, not even up to case and spaces."""
    owners: dict[str, tuple[str, str]] = {}  # folded name: (as written, model)
    for index, model in enumerate(config.models):
        for name, what in [(model.name, "name"), *((a, "alias") for a in model.aliases)]:
            folded = "".join(name.split()).casefold()
            if folded in owners:
                other, owner = owners[folded]
                yield Finding(
                    (f"models[{index}]",),
                    f'the {what} "{name}" of model "{model.name}" is taken by "{other}" of model '
                    f'"{owner}"; names may not differ in case or spaces only',
                )
            owners.setdefault(folded, (name, model.name))


def _task_types(config: SchedulerConfig) -> Iterator[Finding]:
    aliases = config.aliases()
    known = [model.name for model in config.models] + list(aliases)
    default = config.default_model
    if default and known and default not in known:
        yield Finding(
            ("default_model", "models"),
            f'"{default}" is not listed in models{did_you_mean(default, known)}',
        )
    for task_type, given in config.task_types.items():
        where = f"task_types.{task_type}"
        if task_type in ALIASES:
            yield Finding((where,), f'is an alias; write "{ALIASES[task_type]}"')
        elif OPEN_STRING.fullmatch(task_type) is None:
            yield Finding((where,), "must be lower_snake_case of 1 to 64 characters")
        named = [("model", given.model)] if given.model else []
        named += [(f"degrade[{n}]", model) for n, model in enumerate(given.degrade)]
        for key, model in named:
            if known and model not in known:
                yield Finding(
                    (f"{where}.{key}", "models"),
                    f'"{model}" is not listed in models{did_you_mean(model, known)}',
                )


def _degrade_cycles(config: SchedulerConfig) -> Iterator[Finding]:
    """Behaviour 68: no model stands in for itself, directly or through others."""
    aliases = config.aliases()
    steps: dict[str, dict[str, str]] = {}  # model: {substitute: path of the list that says so}
    for task_type, given in config.task_types.items():
        if given.model:
            path = f"task_types.{task_type}.degrade"
            source = aliases.get(given.model, given.model)
            for model in given.degrade:
                steps.setdefault(source, {}).setdefault(aliases.get(model, model), path)
    told: set[frozenset[str]] = set()
    for start in steps:
        circle = _circle(steps, start)
        if circle and frozenset(circle) not in told:
            told.add(frozenset(circle))
            way = " -> ".join([*circle, circle[0]])
            yield Finding((steps[circle[-1]][circle[0]],), f"goes in a circle: {way}")


def _ladders(config: SchedulerConfig) -> Iterator[Finding]:
    """A model has one ladder, and goes down on it in quality."""
    aliases = config.aliases()
    owners: dict[str, str] = {}
    for family, rungs in config.ladders.items():
        for number, rung in enumerate(rungs):
            where = f"ladders.{family}[{number}]"
            model = aliases.get(rung.model, rung.model)
            if model in owners:
                yield Finding((where,), f'"{model}" is on ladder "{owners[model]}" already')
            owners.setdefault(model, family)
            if number and rung.quality > rungs[number - 1].quality:
                yield Finding((f"{where}.quality",), "is above that of the rung before")


def _circle(steps: dict[str, dict[str, str]], start: str) -> list[str]:
    """The models of a way from `start` back to it; empty: there is none."""
    ways = [[start]]
    seen: set[str] = set()  # membership only
    while ways:
        way = ways.pop(0)
        for model in steps.get(way[-1], {}):
            if model == start:
                return way
            if model not in seen:
                seen.add(model)
                ways.append([*way, model])
    return []


_CHECKS: Final[tuple[Callable[[SchedulerConfig], Iterator[Finding]], ...]] = (
    _ports,
    _exposure,
    _tls,
    _limits,
    _heartbeats,
    _backoff,
    _autoscale,
    _policies,
    _names,
    _task_types,
    _degrade_cycles,
    _ladders,
)
