"""How often is work tried again, and how long may one try take?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from scheduler_service.core.settings import FailoverSettings, Hedge, Patience
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND
from service_kit.config_sections import Section
from service_kit.units import DurationNs, PositiveDurationNs

Count = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
# As the protocol has it: 1..256 characters; spaces at the ends would make two names look alike.
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^\S(.*\S)?$")]


class FailoverSection(Section):
    """How often and how soon work is tried again."""

    max_attempts: Annotated[int, Field(strict=True, ge=1, le=10)] = 3
    """Attempts of a request that does not say."""
    backoff_base: PositiveDurationNs = 50 * MILLISECOND
    """Upper bound of the first delay after an engine's error, doubled at each further one. The
    delay is random below it; the work of a lost node moves at once."""
    backoff_max: PositiveDurationNs = 2 * SECOND
    """Upper bound of any delay."""
    retry_share: Ratio = 0.2
    """Retries that each first attempt of a pool pays for. Errors and deaths of nodes have a budget
    each; when it is empty, requests fail with RETRY_BUDGET_EXHAUSTED and job items wait."""
    retry_floor: Ratio = 10.0
    """Retries a second that a pool may always make."""
    retry_burst: Count = 100
    """Most retries that a pool can save up. For deaths at least what its nodes can hold at once."""
    recovery_window: DurationNs = 5 * SECOND
    """After a restart with a `state_dir`: how long requests wait at most for the nodes of before,
    which may bring back what they run, until anything is dispatched. A node that comes later has
    its work abandoned where its request was dispatched again. 0: nothing is waited for."""
    poison_memory: DurationNs = 600 * SECOND
    """How long a request that made three nodes fail is refused, also after a restart where there
    is a `state_dir`, and how long a restart remembers the deaths charged to one that is not refused
    yet. 0: it may be sent again at once."""


class ModelTimeoutsSection(Section):
    """The limits of one model's attempts; what is absent it has from `timeouts`."""

    first_output: PositiveDurationNs | None = None
    """From dispatch to the first output of a request that streams. Absent: no limit."""
    idle: PositiveDurationNs | None = None
    """Silence between two pieces of output. Absent: no limit."""
    total: PositiveDurationNs | None = None
    """From dispatch to the end. Absent: no limit."""


class TimeoutsSection(Section):
    """How long one attempt may take on its node before it is stopped there and tried elsewhere.
    The time of the whole request is its own `timeout`."""

    first_output: PositiveDurationNs | None = None
    """From dispatch to the first output of a request that streams. Absent: no limit."""
    idle: PositiveDurationNs | None = None
    """Silence between two pieces of output. Absent: no limit."""
    total: PositiveDurationNs | None = None
    """From dispatch to the end. Absent: no limit."""
    by_model: dict[ModelName, ModelTimeoutsSection] = Field(default_factory=dict)
    """The same for models that differ; what one does not set, it has from above."""


class ModelHedgingSection(Section):
    """What differs for one model; what is absent it has from `hedging`."""

    enabled: Annotated[bool, Field(strict=True)] | None = None
    """Whether slow attempts of it get a rival."""
    share: Share | None = None
    """Rivals per first attempt, at most."""
    least_delay: PositiveDurationNs | None = None
    """No attempt is slow before."""


class HedgingSection(Section):
    """Sending a request that is slow on its node to a second one as well; the first to answer wins,
    the other is cancelled. For interactive requests of which nothing has been delivered; where
    nobody waits and a node has a free slot."""

    enabled: Annotated[bool, Field(strict=True)] = False
    """Whether slow attempts get a rival. An attempt is slow after three times the mean and after
    the p95 of what attempts of its model take until they answer; 50 of them are seen first."""
    share: Share = 0.02
    """Rivals per first attempt, at most. They also take from the budget of retries."""
    least_delay: PositiveDurationNs = 100 * MILLISECOND
    """No attempt is slow before, whatever the others take."""
    by_model: dict[ModelName, ModelHedgingSection] = Field(default_factory=dict)
    """The same for models that differ; what one does not set, it has from above."""


def failover_settings(
    failover: FailoverSection,
    timeouts: TimeoutsSection,
    hedging: HedgingSection,
    aliases: Mapping[str, str],
) -> FailoverSettings:
    """What the core is given; `aliases`: model names by alias."""
    values = failover.values()
    for name in ("poison_memory", "recovery_window"):  # not the core's failover
        del values[name]
    return FailoverSettings(
        **values,
        patience=_patience(timeouts, timeouts),
        patience_by_model={
            aliases.get(model, model): _patience(own, timeouts)
            for model, own in timeouts.by_model.items()
        },
        hedge=_hedge(hedging, hedging),
        hedge_by_model={
            aliases.get(model, model): _hedge(own, hedging)
            for model, own in hedging.by_model.items()
        },
    )


def _hedge(own: ModelHedgingSection | HedgingSection, general: HedgingSection) -> Hedge | None:
    """Of a model; None: it has no rivals."""
    if not (general.enabled if own.enabled is None else own.enabled):
        return None
    return Hedge(
        share=own.share or general.share,
        least_delay=own.least_delay or general.least_delay,
    )


def _patience(own: ModelTimeoutsSection | TimeoutsSection, general: TimeoutsSection) -> Patience:
    """The limits of a model: its own, else the general ones."""
    limits = {
        name: getattr(own, name) or getattr(general, name) or NEVER
        for name in ("first_output", "idle", "total")
    }
    return Patience(**limits)
