"""How do operators see and change the policies in force?

The text is the live subset of the configuration (`live_policy.py`). A change goes to the core as an
event, and to the edge in the same turn of the loop, so that no request sees half of it. It lasts
until the scheduler ends: the next one starts from its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import yaml

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service import live_policy
from scheduler_service.clock import Clock
from scheduler_service.config import SchedulerConfig
from scheduler_service.config_sources import ConfigError
from scheduler_service.core import records
from scheduler_service.core.events import PoliciesChanged
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Instant
from scheduler_service.driver import Driver
from scheduler_service.report.build import ReportBuilder
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc.asker import principal_of
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.principals import current

MESSAGE_MAX: Final = 900  # characters of what is wrong with a policy
CHANGES_MAX: Final = 1_000  # characters of what an event says was changed
YAML_MAX: Final = 64 << 10  # characters

Context = grpc.aio.ServicerContext[bytes, bytes]


class AdminPolicy:
    """The calls, and the configuration whose live subset is in force."""

    def __init__(
        self,
        driver: Driver,
        reports: ReportBuilder,
        clock: Clock,
        *,
        config: SchedulerConfig,
        on_changed: Callable[[SchedulerConfig], None],
    ) -> None:
        """`on_changed`: told of each new configuration, for what is not the core's."""
        self._driver = driver
        self._reports = reports
        self._clock = clock
        self._on_changed = on_changed
        self._config = config
        self._text = live_policy.write(config)
        self._updated_at: Instant | None = None  # None: as it started
        self._updated_by = ""

    async def get_policy(self, _: pb.GetPolicyRequest, __: Context) -> pb.GetPolicyResponse:
        """What is in force."""
        return pb.GetPolicyResponse(policy=self._written(self._text))

    async def update_policy(
        self, request: pb.UpdatePolicyRequest, context: Context
    ) -> pb.UpdatePolicyResponse:
        """Put another one in force, or say what that would do."""
        why = filters.reason(request.reason)
        _check_length(request.policy.yaml)
        if current().tenants is not None:
            raise Refused(
                "the policy is of all tenants; it takes a credential that is bound to none",
                reason=Reason.PERMISSION_DENIED,
            )
        self._check_etag(request.policy.etag)
        # In a thread: a long text takes its time, and requests do not wait for it. What it is laid
        # over, what cannot be changed, is the same whoever changes the policy meanwhile.
        draft = await asyncio.to_thread(self._read, request.policy.yaml)
        self._check_etag(request.policy.etag)
        text, former = live_policy.write(draft.config), self._text
        answer = pb.UpdatePolicyResponse(
            previous_yaml=former,
            warnings=live_policy.warnings(draft, self._config),
        )
        if text != former and not request.validate_only:
            await self._apply(draft.config, text, why, principal_of(context))
        answer.policy.CopyFrom(self._written(text))
        return answer

    def _check_etag(self, etag: str) -> None:
        now = live_policy.etag_of(self._text)
        if etag and etag != now:
            by = self._updated_by or "its file"
            raise Refused(
                f"the policy was changed since it was read; the one in force is by {by}: "
                "read it again",
                reason=Reason.ETAG_MISMATCH,
                metadata={"etag": now},
            )

    def _read(self, text: str) -> live_policy.Draft:
        try:
            return live_policy.read(text, self._config)
        except ConfigError as fault:
            raise Refused(_short(fault.problems), field="policy.yaml") from None

    async def _apply(self, config: SchedulerConfig, text: str, why: str, principal: str) -> None:
        changes = "; ".join(live_policy.changes(self._config, config))
        settings = config.core_settings(term=1)
        event = PoliciesChanged(
            config.policy_set(),
            settings.queue,
            settings.health,
            settings.failover,
            settings.autoscale,
        )
        self._config, self._text = config, text
        self._updated_at, self._updated_by = self._clock.now(), principal
        self._on_changed(config)
        self._driver.post(event)
        data = {"changes": changes[:CHANGES_MAX], "reason": why}
        self._reports.eventlog.tell(
            records.POLICY_UPDATED, self._updated_at, principal=principal, data=data
        )
        core = self._driver.scheduler
        while core.state.policies is not event.policies and self._config is config:
            await asyncio.sleep(0)
            if self._driver.scheduler is not core:  # it failed, and what it had not heard is lost
                core = self._driver.scheduler
                self._driver.post(event)
        self._reports.retune()

    def _written(self, text: str) -> pb.Policy:
        """With the shares of the asker's own tenants only."""
        policy = pb.Policy(
            etag=live_policy.etag_of(text), yaml=_own(text), updated_by=self._updated_by
        )
        if self._updated_at is not None:
            policy.update_time.CopyFrom(self._clock.timestamp(self._updated_at))
        return policy


def _check_length(text: str) -> None:
    if not text.strip():
        raise Refused("policy.yaml is empty", field="policy.yaml")
    if len(text) > YAML_MAX:
        raise Refused(f"policy.yaml is longer than {YAML_MAX} characters", field="policy.yaml")


def _own(text: str) -> str:
    asker = current()
    if asker.tenants is None:
        return text
    values = yaml.safe_load(text)
    weights = values["queue"]["weights"]
    values["queue"]["weights"] = {name: w for name, w in weights.items() if asker.may_see(name)}
    cut: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    return cut


def _short(problems: list[str]) -> str:
    """All of them, a line each; where that is too long, how many more there are."""
    lines: list[str] = []
    for number, problem in enumerate(problems):
        if sum(map(len, lines)) + len(lines) + len(problem) > MESSAGE_MAX and lines:
            lines.append(f"and {len(problems) - number} more")
            break
        lines.append(problem[:MESSAGE_MAX])
    return "\n".join(lines)
