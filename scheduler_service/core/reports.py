"""What really runs on a node? Its reports are the truth that the books are healed to.

Every difference is counted and recorded: work that the node does not know is moved, work that we do
not know is stopped.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import failover, ledger, records
from scheduler_service.core.events import ReportReceived
from scheduler_service.core.outcomes import AttemptState, Reason
from scheduler_service.core.sessions import set_serving_health
from scheduler_service.core.state import State
from scheduler_service.core.types import SECOND, Attempt, Engine, Node

BACK_OFF: Final = 0.7
KV_FULL: Final = 0.95  # share of its KV memory
IDS_MAX: Final = 10  # that one record names
CLEAN: Final = 10 * SECOND


def on_report(state: State, event: ReportReceived) -> None:
    """Reconcile the books with what really runs."""
    node = state.session(event.node_id, event.epoch)
    if node is None:
        return
    if _load_changed(node, event):
        set_serving_health(node)
        state.rebuild_pools()
    for engine_id, (preemptions, kv_use) in event.pressure.items():
        engine = node.engines.get(engine_id)
        if engine is not None:
            _back_off(state, engine, preemptions, kv_use)
    held = {i for ids in event.held.values() for i in ids}  # membership only
    for attempt in list(node.in_flight.values()):
        if attempt.sent_index <= event.items_received and attempt.dispatch_id not in held:
            _heal_lost(state, node, attempt)
    strangers: list[int] = []
    for engine_id, ids in event.held.items():
        unknown = [i for i in dict.fromkeys(ids) if i not in node.in_flight]
        if unknown:
            _heal_unknown(state, node, engine_id, unknown)
            strangers += unknown
    if strangers or node.strangers:
        node.strangers = frozenset(strangers)
    ledger.check_drained(state, node)


def _back_off(state: State, engine: Engine, preemptions: int | None, kv_use: float | None) -> None:
    """An engine that preempts, or is about to, has too much at once: seven tenths of it; one more
    for every ten seconds without.
    """
    before, engine.preemptions = engine.preemptions, preemptions
    preempted = before is not None and preemptions is not None and preemptions > before
    slots = engine.spec.slots
    if preempted or (kv_use is not None and kv_use > KV_FULL):
        engine.slots_limit = max(1, int(BACK_OFF * min(slots, engine.slots_limit or slots)))
        engine.clean_since = state.now
    elif engine.slots_limit and state.now - engine.clean_since >= CLEAN:
        engine.slots_limit += 1
        engine.clean_since = state.now
        if engine.slots_limit >= slots:
            engine.slots_limit = 0
        state.touch_engine(engine)


def _heal_lost(state: State, node: Node, attempt: Attempt) -> None:
    """We think that it runs there, the node does not: free the room, move the work."""
    attempt.engine.healed += 1
    state.totals.healed += 1
    state.record(
        records.LEDGER_HEALED, attempt=attempt, node_id=node.node_id, what="lost",
        engine=attempt.engine.engine_id, dispatch_ids=[attempt.dispatch_id],
    )  # fmt: skip
    ledger.settle(state, attempt)
    if attempt.dispatch_id in attempt.request.live:
        message = "its node no longer knows it"
        ledger.end(state, attempt, AttemptState.LOST, Reason.NODE_LOST, message)
        failover.retry(state, attempt)


def _heal_unknown(state: State, node: Node, engine_id: str, unknown: list[int]) -> None:
    """The node runs what we do not know of: have it stopped. One that goes on is told again, and
    counted once.
    """
    key = (node.node_id, node.epoch, Reason.REVOKED)
    state.cancels.setdefault(key, []).extend(unknown)
    new = [dispatch_id for dispatch_id in unknown if dispatch_id not in node.strangers]
    if not new:
        return
    engine = node.engines.get(engine_id)
    if engine is not None:
        engine.healed += len(new)
    state.totals.healed += len(new)
    state.record(
        records.LEDGER_HEALED, node_id=node.node_id, what="unknown", engine=engine_id,
        items=len(new), dispatch_ids=new[:IDS_MAX],
    )  # fmt: skip


def _load_changed(node: Node, event: ReportReceived) -> bool:
    """Take over health and loaded models; whether any of it changed."""
    changed = False
    for engine_id, engine in node.engines.items():
        spec, word = engine.spec, event.unhealthy.get(engine_id, "")
        health = (engine_id not in event.unhealthy, engine_id in event.down, word)
        changed |= health != (spec.healthy, spec.down, spec.word)
        spec.healthy, spec.down, spec.word = health
        inactive = event.inactive_models.get(engine_id, ())
        words = event.inactive_words.get(engine_id) or {}
        for model in engine.models.values():
            active, word = model.model not in inactive, words.get(model.model, "")
            changed |= active is not model.active or word != model.word
            model.active, model.word = active, word
    return changed
