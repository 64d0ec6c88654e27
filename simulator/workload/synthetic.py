"""Which workload does a user mean by "poisson:rate=5,lasts=10m"? Arrival processes as text.

KIND:KEY=VALUE,...: `poisson` (rate), `gamma` (rate, cv), `steps` (pieces=2/2m+8/5m+2/3m), `bursts`
(base, peak, every, burst), `servegen` (scale, start). All take `lasts` (10m where not said) and
`lengths` (a preset of `lengths.py`, or PROMPT/OUTPUT as fixed numbers of tokens).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from scheduler_service.core.types import Duration, Instant
from simulator.workload import processes
from simulator.workload.arrival import Arrival
from simulator.workload.errors import TraceError
from simulator.workload.lengths import Lengths, fixed, preset
from simulator.workload.servegen import servegen
from simulator.workload.spans import span

LASTS: Final = "10m"
LENGTHS: Final = "azure-conv"
DIGITS: Final = 9  # of a number of tokens

Values = dict[str, str]


def workload(text: str, *, seed: int = 0) -> Iterator[Arrival]:
    """The arrivals of such a text.

    Raises:
        TraceError: it is none; the message says what would be.
    """
    kind, _, rest = text.partition(":")
    if kind not in _KINDS:
        raise TraceError(f"no workload {kind!r}; known: {', '.join(_KINDS)}, as {_EXAMPLE}")
    values: Values = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise TraceError(f"{part!r} is not KEY=VALUE, as in {_EXAMPLE}")
        values[key] = value
    needed, make = _KINDS[kind]
    unknown = [key for key in values if key not in (*needed, "lasts", "lengths")]
    if unknown:
        keys = ", ".join((*needed, "lasts", "lengths"))
        raise TraceError(f"{kind} has no {unknown[0]!r}; it has {keys}")
    lasts = span(values.pop("lasts", LASTS))
    lengths = _lengths(values.pop("lengths", LENGTHS))
    missing = [key for key, given in needed.items() if key not in values and not given]
    if missing:
        raise TraceError(f"{kind} needs {missing[0]}, as in {_EXAMPLE}")
    return make({**needed, **values}, lengths, lasts, seed)


_EXAMPLE: Final = "poisson:rate=5,lasts=10m,lengths=azure-conv"


def _lengths(text: str) -> Lengths:
    prompt, slash, output = text.partition("/")
    if slash and prompt.isdecimal() and output.isdecimal():
        if max(len(prompt), len(output)) > DIGITS:
            raise TraceError(f"lengths={text} are tokens of at most {DIGITS} digits each")
        return fixed(int(prompt), max(1, int(output)))
    return preset(text)


def number(key: str, text: str, *, least: float = 1e-9, most: float = 1e9) -> float:
    """A number from `least` to `most`.

    Raises:
        TraceError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise TraceError(f"{key}={text} is no number above 0")
    if not least <= value <= most:
        raise TraceError(f"{key}={text} is not from {least:g} to {most:g}")
    return value


def _poisson(values: Values, lengths: Lengths, lasts: Duration, seed: int) -> Iterator[Arrival]:
    instants = processes.poisson(number("rate", values["rate"]), seed=seed)
    return _until(instants, lengths, lasts, seed)


def _gamma(values: Values, lengths: Lengths, lasts: Duration, seed: int) -> Iterator[Arrival]:
    rate = number("rate", values["rate"])
    cv = number("cv", values["cv"], least=0.01, most=100)
    return _until(processes.gamma(rate, cv, seed=seed), lengths, lasts, seed)


def _bursts(values: Values, lengths: Lengths, lasts: Duration, seed: int) -> Iterator[Arrival]:
    every, burst = span(values["every"]), span(values["burst"])
    if not 0 < burst < every:
        raise TraceError(
            f"a burst={values['burst']} is to end before the next, every={values['every']}"
        )
    instants = processes.bursts(
        number("base", values["base"]),
        number("peak", values["peak"]),
        every=every,
        lasts=burst,
        seed=seed,
    )
    return _until(instants, lengths, lasts, seed)


def _steps(values: Values, lengths: Lengths, lasts: Duration, seed: int) -> Iterator[Arrival]:
    """Its pieces say how long it lasts."""
    del lasts
    pieces = []
    for piece in values["pieces"].split("+"):
        rate, slash, length = piece.partition("/")
        if not slash:
            raise TraceError(f"{piece!r} is not RATE/TIME, as in steps:pieces=2/2m+8/5m+2/3m")
        pieces.append((number("rate", rate), span(length)))
    return processes.requests(processes.steps(pieces, seed=seed), lengths, seed=seed)


def _servegen(values: Values, lengths: Lengths, lasts: Duration, seed: int) -> Iterator[Arrival]:
    scale = number("scale", values["scale"])
    start = span(values["start"])
    drawn = servegen(lengths, seed=seed, start=start, lasts=lasts, scale=scale)
    return itertools.takewhile(lambda arrival: arrival.at < lasts, drawn)


def _until(
    instants: Iterator[Instant], lengths: Lengths, lasts: Duration, seed: int
) -> Iterator[Arrival]:
    return processes.requests(instants, lengths, until=lasts, seed=seed)


_Make = Callable[[Values, Lengths, Duration, int], Iterator[Arrival]]
# What each needs, with its default; "" is one that has to be said.
_KINDS: Final[Mapping[str, tuple[dict[str, str], _Make]]] = {
    "poisson": ({"rate": ""}, _poisson),
    "gamma": ({"rate": "", "cv": "3"}, _gamma),
    "steps": ({"pieces": ""}, _steps),
    "bursts": ({"base": "", "peak": "", "every": "5m", "burst": "30s"}, _bursts),
    "servegen": ({"scale": "0.05", "start": "0s"}, _servegen),
}
