"""Where are results kept, and how are they told? docs/experiments.md, of one JSON file for each.

An experiment that was run for the document leaves its rows and tables in
docs/experiments/NAME.json and its charts beside it; the page is made of all such files. So one of
them can be run again without the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from simulator.experiments.drawing import picture
from simulator.experiments.reworded import REWORDED
from simulator.experiments.verdicts import Experiment, Findings, Row, markdown

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "experiments.md"
FOLDER: Final = ROOT / "docs" / "experiments"

# What the results depend on; a change elsewhere leaves them true.
MEASURED: Final = ("simulator", "scheduler_service", "node_agent")

_HEAD: Final = """# Experiments

Written by `make experiments`; the text of each section is that of its module in
`simulator/experiments/`. Every run is that of the scheduler's own core in the
[simulator](simulation.md), with fixed seeds, so that it can be repeated to the digit; `night-live`
alone plays in real time:

```
make experiments                                           # all, and this page: 45 minutes
.venv/bin/python -m simulator.experiments e3               # one, on the terminal
.venv/bin/python -m simulator.experiments e3 --short       # small; proves less
.venv/bin/python -m simulator.experiments e3 --document    # one, and its part of this page
```

{summary} {commits}

{reworded}
"""


def keep(experiment: Experiment, found: Findings, seconds: float) -> None:
    """Write its results and charts."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob(f"{experiment.name}-*.svg"):
        old.unlink()
    for name, chart in found.charts.items():
        path = FOLDER / f"{experiment.name}-{name}.svg"
        path.write_text(picture(chart), encoding="utf-8")
    kept = {
        "commit": commit(),
        "seconds": round(seconds),
        "rows": [asdict(row) for row in found.rows],
        "tables": [asdict(table) for table in found.tables],
        "charts": {name: [c.title, c.about] for name, c in found.charts.items()},
    }
    path = FOLDER / f"{experiment.name}.json"
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(experiments: Mapping[str, Experiment]) -> str:
    """The whole document, of what was kept."""
    kept = {name: _kept(name) for name in experiments}
    sections = [_section(experiments[name], found) for name, found in kept.items() if found]
    rows = [row for found in kept.values() if found for row in found["rows"]]
    failed = sum(not row["passed"] for row in rows)
    summary = f"{len(rows)} predictions, of which {len(rows) - failed} hold."
    if failed:
        summary += f" **{failed} do not**; they are marked, and what is known of it is said there."
    head = _HEAD.format(
        summary=summary,
        commits=_commits(
            {n: found.get("commit", "one before") for n, found in kept.items() if found}
        ),
        reworded=REWORDED,
    )
    return "\n".join([head, *sections])


def commit() -> str:
    """That this runs at, with "+" where what is measured differs; "unknown" outside a checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--", *MEASURED) else "")


def write(experiments: Mapping[str, Experiment]) -> None:
    """Make the page anew."""
    PAGE.write_text(page(experiments), encoding="utf-8")


def _commits(by_name: Mapping[str, str]) -> str:
    commits = list(dict.fromkeys(by_name.values()))
    if len(commits) == 1:
        return f"All were run at commit {commits[0]}."
    parts = (f"{', '.join(n for n in by_name if by_name[n] == c)} at {c}" for c in commits)
    return f"Commits: {'; '.join(parts)}."


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _kept(name: str) -> dict[str, Any] | None:
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _section(experiment: Experiment, found: dict[str, Any]) -> str:
    about = (sys.modules[experiment.run.__module__].__doc__ or "").strip()
    parts = [f"## {experiment.name}: {experiment.title}", "", about, ""]
    for table in found["tables"]:
        head = " | ".join(table["head"])
        parts += [f"{table['title']}:", "", f"| {head} |", "|---" * len(table["head"]) + "|"]
        parts += [f"| {' | '.join(line)} |" for line in table["lines"]] + [""]
    for name, (title, text) in found["charts"].items():
        parts += [f"![{title}](experiments/{experiment.name}-{name}.svg)", "", text, ""]
    parts += [markdown([Row(**row) for row in found["rows"]]), ""]
    parts += [f"It took {found['seconds']} s, beside what else the machine did.", ""]
    return "\n".join(parts)
