"""Shall this request be traced? Callers' own decisions are followed; else it is decided here."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

ROOT_TRACES_PER_S: Final = 10.0

_SAMPLERS: Final = {"always_on", "always_off", "traceidratio", "parentbased_always_on",
                    "parentbased_always_off", "parentbased_traceidratio"}  # fmt: skip


class RootSampler:
    """Decides where the caller does not: by OTEL_TRACES_SAMPLER where it is set, else all
    requests up to `ROOT_TRACES_PER_S` a second, and that many beyond (a token bucket holding one
    second's worth).
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        name = env.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
        self._ratio: float | None = None
        if name == "always_on":
            self._ratio = 1.0
        elif name == "always_off":
            self._ratio = 0.0
        elif name == "traceidratio":
            self._ratio = _share(env.get("OTEL_TRACES_SAMPLER_ARG") or "1")
        elif name:
            log.warning(
                "OTEL_TRACES_SAMPLER %r is not known; known: %s",
                name,
                sorted(_SAMPLERS),
                extra={"event": "telemetry_config"},
            )
        self._tokens = ROOT_TRACES_PER_S
        self._filled_at_ns = 0
        self._random = random.Random()

    @property
    def is_off(self) -> bool:
        """Whether nothing is to be traced but what callers ask for."""
        return self._ratio == 0.0

    def sample(self, now_ns: int) -> bool:
        """Decide for a root, at a monotonic time."""
        if self._ratio is not None:
            return self._random.random() < self._ratio
        gained = (now_ns - self._filled_at_ns) / 1e9 * ROOT_TRACES_PER_S
        self._tokens = min(ROOT_TRACES_PER_S, self._tokens + gained)
        self._filled_at_ns = now_ns
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        log.warning(
            "OTEL_TRACES_SAMPLER_ARG %r is no number; taking 1",
            text,
            extra={"event": "telemetry_config"},
        )
        return 1.0
