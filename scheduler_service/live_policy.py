"""What can be changed while the scheduler runs? The live subset of its configuration.

Policies, bounds of the queue, retries, time limits of attempts, thresholds of scaling and of
outliers, defaults by task type. It is read from the file that the scheduler starts with and that
`batchyard simulate --policy` takes: what the file does not say is the default, as at a start. What
else the file says (addresses, certificates) is checked and left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import yaml

from scheduler_service import config_advice, config_checks
from scheduler_service.config import SchedulerConfig
from scheduler_service.config_sources import FORM, ConfigError
from service_kit.config_plain import plain

# Keys of a section that can change, or all; what is told to agents at their hello cannot.
LIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "policies": (),
    "queue": (),
    "health": (
        "lost_memory", "refused_pause", "eject_base", "eject_max", "eject_share", "keep_share",
        "warm_up", "warm_up_new",
    ),
    "failover": (
        "max_attempts", "backoff_base", "backoff_max", "retry_share", "retry_floor", "retry_burst",
    ),
    "timeouts": (),
    "hedging": (),
    "task_types": (),
    "ladders": (),
    "default_model": (),
    "autoscale": (
        "min", "max", "tick", "queue", "wait", "cooldown_out", "idle", "cooldown_in",
        "start_timeout", "drain_grace", "cold_start", "min_spare",
    ),
}  # fmt: skip
SOURCE: Final = "policy"  # what problems are said to be in
UNSET: Final = "not set"


@dataclass(frozen=True, slots=True)
class Draft:
    """What would be in force."""

    config: SchedulerConfig
    left_alone: list[str]  # paths that say something else than what runs, and take a restart


def read(text: str, base: SchedulerConfig) -> Draft:
    """What would be in force instead of `base`.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    given, said = FORM.read_text(text, SOURCE)
    live: dict[str, Any] = {}
    for name, keys in LIVE.items():
        part = getattr(given, name)
        if keys:
            own = getattr(base, name)
            part = own.model_copy(update={key: getattr(part, key) for key in keys})
        live[name] = part
    config = base.model_copy(update=live)
    problems = [f"{found.paths[0]}: {found.text}" for found in config_checks.find(config)]
    if problems:
        raise ConfigError(problems)
    return Draft(config, list(_left_alone(given, base, said)))


def warnings(draft: Draft, base: SchedulerConfig) -> list[str]:
    """What has no effect, and what works against other settings and did not before."""
    left_alone = [
        f"{path} differs from what is in force and takes a restart: left as it is"
        for path in draft.left_alone
    ]
    known = [*config_advice.find(base)]
    advice = [each for each in config_advice.find(draft.config) if each not in known]
    return left_alone + [f"{each.paths[0]} {each.text}" for each in advice]


def write(config: SchedulerConfig) -> str:
    """The live subset as a file."""
    text: str = yaml.safe_dump(
        live_values(config), allow_unicode=True, sort_keys=False, default_flow_style=False
    )
    return text


def live_values(config: SchedulerConfig) -> dict[str, Any]:
    """The live subset as nested values; of a policy without options just its name."""
    whole = plain(config, SchedulerConfig())
    values: dict[str, Any] = {}
    for name, keys in LIVE.items():
        if name in whole:
            part = whole[name]
            values[name] = {key: part[key] for key in keys if key in part} if keys else part
    chosen = values["policies"]
    own = {model: _choice(given) for model, given in chosen["order_by_model"].items()}
    values["policies"] = {**{k: _choice(v) for k, v in chosen.items()}, "order_by_model": own}
    return values


def etag_of(text: str) -> str:
    """Equal for equal texts only."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def changes(before: SchedulerConfig, after: SchedulerConfig) -> list[str]:
    """Lines as `queue.floor_every: 8 -> 4`, in the order of the file."""
    old, new = _flat(live_values(before)), _flat(live_values(after))
    paths = dict.fromkeys([*new, *old])
    return [
        f"{path}: {old.get(path, UNSET)} -> {new.get(path, UNSET)}"
        for path in paths
        if old.get(path) != new.get(path)
    ]


def _choice(given: Any) -> Any:
    return given["name"] if isinstance(given, dict) and not given.get("options", True) else given


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif key == "name" and prefix.startswith("policies."):
            found[prefix.removesuffix(".")] = str(value)
        else:
            found[f"{prefix}{key}"] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def _left_alone(
    given: SchedulerConfig, base: SchedulerConfig, said: Mapping[str, Any]
) -> Iterator[str]:
    for name in said:
        ours, theirs = getattr(given, name), getattr(base, name)
        if name not in LIVE:
            if ours != theirs and not isinstance(said[name], Mapping):
                yield name
            elif ours != theirs:
                yield from (
                    f"{name}.{key}"
                    for key in said[name]
                    if getattr(ours, key) != getattr(theirs, key)
                )
        elif keys := LIVE[name]:
            yield from (
                f"{name}.{key}"
                for key in said[name]
                if key not in keys and getattr(ours, key) != getattr(theirs, key)
            )
