"""How are runs put side by side for a reader? A table of text, one column per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.summary import Part, Summary

Row = tuple[str, Callable[[Summary], str]]


def table(summaries: Sequence[Summary], *, tenants: int | None = None) -> str:
    """All runs, side by side; `tenants`: so many of the largest, None: all that are known."""
    return aligned(cells(summaries, tenants=tenants))


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The first column to the left, all others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        ).rstrip()
        for line in lines
    )


def cells(summaries: Sequence[Summary], *, tenants: int | None = None) -> list[list[str]]:
    """The table's rows, names first. Those that say nothing for any run are left out."""
    rows = [*_HEAD, *_parts(summaries, tenants), *_TAIL]
    lines = [["", *(s.name or f"run {n}" for n, s in enumerate(summaries, 1))]]
    for name, show in rows:
        shown = [show(s) for s in summaries]
        if any(cell not in ("", "0", "-") for cell in shown):
            lines.append([name, *shown])
    return lines


def seconds(value: float) -> str:
    """Three digits that say something: "0.012 s", "12.3 s"."""
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{value:.3f} s"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def share(value: float) -> str:
    """ "99.31 %"."""
    return f"{100 * value:.2f} %"


def _times(
    show: Callable[[Part], tuple[float, float]], *, known: bool = False
) -> Callable[[Part | None], str]:
    """`known`: it takes some time always, so 0 means that nobody looked."""

    def cell(part: Part | None) -> str:
        if part is None or not part.succeeded:
            return "-"
        p50, p99 = show(part)
        if known and not p99:
            return "-"
        return f"{seconds(p50)} / {seconds(p99)}"

    return cell


_wait = _times(lambda part: (part.wait.p50, part.wait.p99))
_ttft = _times(lambda part: (part.ttft.p50, part.ttft.p99), known=True)
_total = _times(lambda part: (part.total.p50, part.total.p99))


_HEAD: tuple[Row, ...] = (
    ("requests", lambda s: str(s.requests)),
    ("  succeeded", lambda s: str(s.outcomes.get("succeeded", 0))),
    ("  rejected", lambda s: str(s.rejected)),
    ("  expired", lambda s: str(s.outcomes.get("expired", 0))),
    ("  failed", lambda s: str(s.outcomes.get("failed", 0))),
    ("  cancelled", lambda s: str(s.outcomes.get("cancelled", 0))),
    ("objective met", lambda s: share(s.all.attained)),
    ("wait p50 / p99", lambda s: _wait(s.all)),
    ("first output p50 / p99", lambda s: _ttft(s.all)),
    ("total p50 / p99", lambda s: _total(s.all)),
)

_TAIL: tuple[Row, ...] = (
    ("requests/s", lambda s: f"{s.requests_per_s:.2f}"),
    ("output tokens/s", lambda s: f"{s.output_tokens_per_s:.0f}"),
    ("utilisation", lambda s: share(s.utilisation)),
    ("node-hours", lambda s: f"{s.node_hours:.2f}"),
    ("cost", lambda s: f"{s.cost:.2f}"),
    ("degraded", lambda s: str(s.degraded)),
    ("failovers", lambda s: str(s.failovers)),
    ("preempted", lambda s: str(s.preempted)),
    ("scaling steps", lambda s: str(s.scale_turns)),
)


def _parts(summaries: Sequence[Summary], most: int | None) -> list[Row]:
    """Per priority, where there are several; per tenant, those that are large in any run."""
    rows: list[Row] = []
    priorities = sorted({p for s in summaries for p in s.priorities}, reverse=True)
    if len(priorities) > 1:
        for priority in priorities:
            rows += _rows_of(f"p{priority}", _of_priority(priority))
    tenants = list(dict.fromkeys(name for s in summaries for name in s.tenants))
    for name in tenants[:most]:
        rows += _rows_of(name or "-", _of_tenant(name))
    return rows


def _of_priority(priority: int) -> Callable[[Summary], Part | None]:
    return lambda summary: summary.priorities.get(priority)


def _of_tenant(name: str) -> Callable[[Summary], Part | None]:
    return lambda summary: summary.tenants.get(name)


def _rows_of(name: str, of: Callable[[Summary], Part | None]) -> list[Row]:
    def met(summary: Summary) -> str:
        part = of(summary)
        return share(part.attained) if part is not None else "-"

    return [
        (f"{name}: objective met", met),
        ("  wait p50 / p99", lambda s: _wait(of(s))),
        ("  first output p50 / p99", lambda s: _ttft(of(s))),
    ]
