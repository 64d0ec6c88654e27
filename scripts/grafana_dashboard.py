"""Write deploy/grafana.json: a dashboard over the metrics of docs/metrics.md.

The panels are listed here, a line each; the file is what Grafana imports. `--check` fails if the
file is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana.json"
_BY_LE: Final = "sum by (le) (rate({}_bucket[5m]))"


def quantile(share: float, name: str) -> str:
    """A percentile over five minutes."""
    return f"histogram_quantile({share}, {_BY_LE.format(name)})"


def mean(name: str) -> str:
    """The mean over five minutes."""
    return f"rate({name}_sum[5m]) / rate({name}_count[5m])"


# Title, unit, and what is drawn: (expression, legend).
PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "Waiting by priority (10 = most urgent)",
        "short",
        (("sum by (priority) (batchyard_queue_depth)", "p{{priority}}"),),
    ),
    ("Oldest wait", "s", (("batchyard_queue_oldest_age_seconds", "{{pool}}"),)),
    (
        "Wait of what was dispatched",
        "s",
        (
            (quantile(0.5, "batchyard_queue_wait_seconds"), "p50"),
            (quantile(0.99, "batchyard_queue_wait_seconds"), "p99"),
        ),
    ),
    (
        "Ended by outcome",
        "reqps",
        (("sum by (outcome) (rate(batchyard_requests_total[1m]))", "{{outcome}}"),),
    ),
    (
        "Duration of successes",
        "s",
        (
            (quantile(0.5, "gen_ai_server_request_duration_seconds"), "p50"),
            (quantile(0.99, "gen_ai_server_request_duration_seconds"), "p99"),
        ),
    ),
    (
        "Time to first token",
        "s",
        (
            (quantile(0.5, "gen_ai_server_time_to_first_token_seconds"), "p50"),
            (quantile(0.99, "gen_ai_server_time_to_first_token_seconds"), "p99"),
        ),
    ),
    (
        "Slots in use",
        "short",
        (
            ("sum by (node) (batchyard_inflight)", "{{node}}"),
            ("sum(batchyard_slots)", "all slots"),
        ),
    ),
    (
        "Tokens",
        "short",
        (
            ("rate(batchyard_tokens_output_total[1m])", "written/s"),
            ("rate(batchyard_tokens_wasted_total[1m])", "for nothing/s"),
        ),
    ),
    (
        "Failovers, preemptions, refusals",
        "short",
        (
            ("increase(batchyard_failovers_total[5m])", "failovers"),
            ("increase(batchyard_preemptions_total[5m])", "preemptions"),
            ("sum by (reason) (increase(batchyard_admission_rejections_total[5m]))", "{{reason}}"),
        ),
    ),
    (
        "Nodes that are not healthy",
        "short",
        (('sum by (state) (batchyard_node_health{state!="healthy"})', "{{state}}"),),
    ),
    (
        "Batch size",
        "short",
        (
            (
                mean("batchyard_dispatch_batch_size"),
                "{{pool}}",
            ),
        ),
    ),
    (
        "Event loop, late by",
        "s",
        ((quantile(0.99, "batchyard_event_loop_lag_seconds"), "p99"),),
    ),
    (
        "Autoscaler",
        "short",
        (
            ("batchyard_autoscale_desired", "{{pool}} wanted"),
            ("batchyard_autoscale_current", "{{pool}} ready"),
            ("batchyard_autoscale_pressure", "{{pool}} pressure"),
        ),
    ),
    (
        "Spans lost",
        "short",
        (
            (
                'increase(batchyard_telemetry_spans_total{outcome!="exported"}[5m])',
                "{{outcome}}",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": "batchyard",
        "title": "Batchyard",
        "tags": ["batchyard"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus"}],
        },
        "panels": [_panel(number, *about) for number, about in enumerate(PANELS)],
    }


def _panel(
    number: int, title: str, unit: str, drawn: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(drawn)
        ],
    }


def main(arguments: list[str]) -> int:
    """Write it, or with `--check` compare."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if arguments != ["--check"]:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.exists() and FILE.read_text(encoding="utf-8") == text:
        return 0
    print("deploy/grafana.json is stale: run `make gen`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
