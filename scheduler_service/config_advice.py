"""Which settings are valid and yet work against each other?

`config_checks.py` has what cannot be; here is what a person probably did not mean. The doctor tells
it, and so does whoever puts a policy in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from scheduler_service.config import SchedulerConfig
from service_kit.config_faults import Finding
from service_kit.units import write_duration


def find(config: SchedulerConfig) -> Iterator[Finding]:
    """All of them; the first path is the one to change."""
    for look in _LOOKS:
        yield from look(config)


def _autoscale(config: SchedulerConfig) -> Iterator[Finding]:
    scale = config.autoscale
    if scale.enabled and scale.actuator == "none":
        yield Finding(
            ("autoscale.actuator", "autoscale.enabled"),
            "is none: what the autoscaler decides is only shown",
        )
    if config.policies.autoscale.name == "fixed" and scale.enabled:
        yield Finding(
            ("policies.autoscale", "autoscale.enabled"),
            "is fixed: the autoscaler is on and keeps one number of nodes whatever waits",
        )


def _task_types(config: SchedulerConfig) -> Iterator[Finding]:
    for name, given in config.task_types.items():
        where = f"task_types.{name}"
        if given.timeout is None:
            continue
        if given.max_wait is not None and given.max_wait >= given.timeout:
            yield Finding(
                (f"{where}.max_wait", f"{where}.timeout"),
                f"is {write_duration(given.max_wait)}, and its requests are over after "
                f"{write_duration(given.timeout)}: it never counts",
            )
        if given.timeout > config.limits.max_timeout:
            yield Finding(
                (f"{where}.timeout", "limits.max_timeout"),
                f"is cut to limits.max_timeout, {write_duration(config.limits.max_timeout)}",
            )


def _degrade(config: SchedulerConfig) -> Iterator[Finding]:
    if config.policies.degrade.name != "never":
        return
    lists = [f"task_types.{name}.degrade" for name, t in config.task_types.items() if t.degrade]
    for path in [*lists, *(f"ladders.{family}" for family in config.ladders)]:
        yield Finding((path, "policies.degrade"), "counts for nothing: policies.degrade is never")


def _attempts(config: SchedulerConfig) -> Iterator[Finding]:
    limits = config.timeouts
    for name in ("first_output", "idle"):
        part, total = getattr(limits, name), limits.total
        if part is not None and total is not None and part >= total:
            yield Finding(
                (f"timeouts.{name}", "timeouts.total"),
                f"is {write_duration(part)}, and an attempt is over after {write_duration(total)}",
            )
    if config.hedging.enabled and config.failover.max_attempts == 1:
        yield Finding(
            ("failover.max_attempts", "hedging.enabled"),
            "is 1: a rival is an attempt, so no request gets one",
        )


def _queue(config: SchedulerConfig) -> Iterator[Finding]:
    if config.queue.floor_every == 0 and config.policies.order.name not in ("fifo", "fair"):
        yield Finding(
            ("queue.floor_every", "policies.order"),
            f"is 0: under {config.policies.order.name} requests may wait for ever",
        )
    if config.queue.weights and config.policies.order.name == "fifo":
        yield Finding(("queue.weights", "policies.order"), "count for nothing under fifo")


def _restarts(config: SchedulerConfig) -> Iterator[Finding]:
    if config.state_dir is None:
        yield Finding(
            ("state_dir",),
            "is absent: no jobs, and after a restart what agents run is lost",
        )


_LOOKS: Final[tuple[Callable[[SchedulerConfig], Iterator[Finding]], ...]] = (
    _autoscale,
    _task_types,
    _degrade,
    _attempts,
    _queue,
    _restarts,
)
