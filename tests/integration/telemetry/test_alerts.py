"""Alerts and Grafana's dashboard: every name exists, every alert fires on what the scheduler says.

Each alert is provoked: a scheduler is brought into the bad state, and what it then exports is fed
to Prometheus' own rule engine (`promtool test rules`; `make tools` fetches it). There the alert
must fire, and must not on what a healthy one exports. Without promtool that is skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from scheduler_service.core.events import PoolPaused, SessionBroken
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.settings import CoreSettings, QueueSettings
from scheduler_service.core.types import SECOND
from scheduler_service.report.queues import PoolWriter
from scheduler_service.telemetry.metrics import SchedulerMetrics
from scheduler_service.telemetry.node_metrics import NodeMetrics
from scripts.fetch_test_tools import PROMTOOL as FETCHED
from service_kit import prometheus
from service_kit.loop_lag import LoopLag
from service_kit.metrics import Kind
from service_kit.tracing import SpanCounts
from tests.unit.scheduler.small_world import SmallWorld

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "alerts.yaml"
PROMTOOL = shutil.which("promtool") or (str(FETCHED) if FETCHED.exists() else None)
Series = dict[str, float]


class Watched:
    """A world, and what its scheduler exports."""

    def __init__(self) -> None:
        queue = QueueSettings(max_requests=6)
        self.world = SmallWorld(CoreSettings(queue=queue, known_models=frozenset({"m"})))
        self.lag, self.spans = LoopLag(), SpanCounts()
        self.metrics = SchedulerMetrics(
            driver=self.world.driver,
            statistics=self.world.statistics,
            pools=PoolWriter(self.world.clock, 3 * SECOND),
            nodes=NodeMetrics(lambda _node, _epoch: None),
            lag=self.lag,
            spans=self.spans,
            clock=self.world.clock,
        )

    def series(self) -> Series:
        found = {}
        for family in text_string_to_metric_families(prometheus.text(self.metrics())[0].decode()):
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
        return found


async def no_node(w: Watched) -> None:
    await w.world.submit(2)


async def old_queue(w: Watched) -> None:
    await w.world.join("n0")
    await w.world.submit(3)
    await w.world.pass_time(70)


async def rejecting(w: Watched) -> None:
    await w.world.join("n0")
    await w.world.submit(20)


async def failing(w: Watched) -> None:
    await w.world.join("n0", slots=4)
    await w.world.finish(*await w.world.submit(3, max_attempts=1), reason=Reason.ENGINE_ERROR)


async def node_lost(w: Watched) -> None:
    node = await w.world.join("n0")
    await w.world.join("n1")
    await w.world.post(SessionBroken("n0", node.epoch))
    await w.world.pass_time(4)


async def node_unwell(w: Watched) -> None:
    node = await w.world.join("n0")
    await w.world.post(SessionBroken("n0", node.epoch))


async def paused(w: Watched) -> None:
    await w.world.join("n0")
    await w.world.post(PoolPaused("m", True))


async def loop_lag(w: Watched) -> None:
    for _ in range(100):
        w.lag.counted.add(0.9)


async def spans_lost(w: Watched) -> None:
    w.spans.dropped = 9


async def ledger_healed(w: Watched) -> None:
    w.world.driver.scheduler.state.totals.healed = 2


async def core_fault(w: Watched) -> None:
    w.world.driver.faults = 1


PROVOKED: dict[str, Callable[[Watched], Awaitable[None]]] = {
    "BatchyardNoNode": no_node,
    "BatchyardQueueOld": old_queue,
    "BatchyardRejecting": rejecting,
    "BatchyardFailing": failing,
    "BatchyardNodeLost": node_lost,
    "BatchyardNodeUnwell": node_unwell,
    "BatchyardPoolPaused": paused,
    "BatchyardLoopLag": loop_lag,
    "BatchyardSpansLost": spans_lost,
    "BatchyardLedgerHealed": ledger_healed,
    "BatchyardCoreFault": core_fault,
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def names_of(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:batchyard|gen_ai)_[a-z_]+", expression))


def test_every_alert_has_an_entry_of_the_runbook_and_is_provoked() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
    alerts = [rule["alert"] for rule in rules()]
    assert sorted(headings) == sorted(alerts)
    assert set(alerts) == {*PROVOKED, "BatchyardDown"}
    for rule in rules():
        anchor = rule["annotations"]["runbook"].partition("#")[2]
        assert anchor == rule["alert"].lower()


async def test_alerts_and_the_dashboard_of_grafana_name_only_metrics_that_exist() -> None:
    made = set()
    for family in Watched().metrics():
        name = prometheus.name_of(family)
        if family.kind is Kind.HISTOGRAM:
            made |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        else:
            made.add(f"{name}_total" if family.kind is Kind.COUNTER else name)
    grafana = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    shown = [t["expr"] for panel in grafana["panels"] for t in panel["targets"]]
    for expression in [*shown, *(rule["expr"] for rule in rules())]:
        assert names_of(expression) <= made, expression


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: run `make tools`")
async def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    tests = [_down()]
    for alert, provoke in PROVOKED.items():
        watched = Watched()
        healthy = watched.series()
        await provoke(watched)
        tests.append(_case(alert, healthy, watched.series()))
    file = tmp_path / "provoked.yaml"
    whole = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    run_promtool("check", "rules", str(RULES))
    run_promtool("test", "rules", str(file))


def run_promtool(*command: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: run `make tools`")
def test_every_expression_of_grafana_is_one(tmp_path: Path) -> None:
    grafana = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    shown = [t["expr"] for panel in grafana["panels"] for t in panel["targets"]]
    made = [{"record": f"shown:{n}", "expr": expression} for n, expression in enumerate(shown)]
    file = tmp_path / "shown.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": made}]}), encoding="utf-8")
    run_promtool("check", "rules", str(file))


def _case(alert: str, healthy: Series, bad: Series) -> dict[str, Any]:
    """Ten healthy minutes, then an hour of the bad state, in which counters grow as they did."""
    given = []
    for name in sorted({*healthy, *bad}):
        before, after = healthy.get(name, 0.0), bad.get(name, 0.0)
        grows = re.match(r"\w+_(?:total|bucket|count|sum)\{", name) is not None
        step = after - before if grows else 0.0
        given.append({"series": name, "values": f"{before}x20 {after}+{step}x120"})
    return _test(alert, given, quiet_until="10m", fires_at="45m")


def _down() -> dict[str, Any]:
    up = {"series": 'up{job="batchyard"}', "values": "1x20 0x120"}
    return _test("BatchyardDown", [up], quiet_until="10m", fires_at="45m")


def _test(
    alert: str, given: list[dict[str, str]], *, quiet_until: str, fires_at: str
) -> dict[str, Any]:
    """Whether it fires is asked of the rule engine's own series ALERTS, labels aside."""
    firing = f'count(count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}}))'
    one = [{"labels": "{}", "value": 1}]
    return {
        "interval": "30s",
        "input_series": given,
        "promql_expr_test": [
            {"expr": firing, "eval_time": quiet_until, "exp_samples": []},
            {"expr": firing, "eval_time": fires_at, "exp_samples": one},
        ],
    }
