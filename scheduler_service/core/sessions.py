"""The life of a node: how does it join, fall silent, come back, drain and go?

Theory of operation. One stream is one session; a node's books (`Node`) belong to one session and
start anew with the next. Liveness is any message.

    joined --silent 3 s, or its stream broke--> SUSPECT --2 s more--> LOST
                 ^-------- heard again, or a new stream of the same boot --|

SUSPECT: no new work; work that delivered nothing moves at once if the stream broke (both attempts
may then speak, the first wins); work in mid-stream waits for the window. LOST: everything there is
fenced off and failed over; a message that comes later meets a session that no longer exists, and
the agent is told to abandon what it holds when it says hello again.

A newcomer that claims the id of a live session is refused, unless that session misses a ping.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_service.core import (
    adoption,
    apart,
    drains,
    failover,
    gone_models,
    health,
    ledger,
    records,
    requests,
    scaling,
)
from scheduler_service.core.commands import CloseSession, PingNode, WelcomeNode
from scheduler_service.core.events import (
    CreditsGranted,
    NodeDescribed,
    NodeJoined,
    NodesHeard,
    SessionBroken,
)
from scheduler_service.core.outcomes import (
    AttemptState,
    NodeAvailability,
    NodeHealth,
    Reason,
    RequestClass,
    RequestState,
)
from scheduler_service.core.state import State
from scheduler_service.core.transitions import move_health, move_request
from scheduler_service.core.types import (
    Attempt,
    Engine,
    EngineSpec,
    Node,
    NodeSpec,
)


def on_joined(state: State, event: NodeJoined) -> None:
    """A new stream said hello."""
    old = state.nodes.get(event.node_id)
    if old is not None and event.node_id in state.newcomers:
        old = _settle_claim(state, old, event)
    if old is None or not _holds_id(state, old, event):
        _admit(state, event)
        return
    state.newcomers[event.node_id] = event
    state.emit(PingNode(old.node_id, old.epoch))
    state.timers.set(("ping", old.node_id), state.now + state.settings.health.ping_timeout)


def _settle_claim(state: State, holder: Node, event: NodeJoined) -> Node:
    """Another hello while a newcomer's claim is open: decide that first. Returns the holder."""
    newcomer = state.newcomers.pop(holder.node_id)
    state.timers.cancel(("ping", holder.node_id))
    if newcomer.boot_id == event.boot_id:  # it dialled again
        _close_replaced(state, newcomer.node_id, newcomer.epoch)
    elif event.boot_id == holder.boot_id or _holds_id(state, holder, newcomer):
        _refuse(state, newcomer, holder)
    else:
        _admit(state, newcomer)
    return state.nodes[holder.node_id]


def _close_replaced(state: State, node_id: str, epoch: int) -> None:
    """End a stream in favour of another of the same process. It may dial again: a hello that was
    held up on the way comes after its successor's, and then this is the stream that the agent has.
    """
    message = "another stream of this agent took over"
    state.emit(CloseSession(node_id, epoch, Reason.SESSION_REPLACED, message, reconnect=True))


def _holds_id(state: State, old: Node, event: NodeJoined) -> bool:
    """Whether another process's session of that id seems alive."""
    recent = state.now - old.last_heard < state.settings.health.session_timeout
    return old.alive and old.connected and recent and old.boot_id != event.boot_id


def on_ping_timeout(state: State, node_id: str) -> None:
    """The holder of a claimed id did not answer, or its stream broke: the newcomer has the id."""
    newcomer = state.newcomers.pop(node_id, None)
    if newcomer is not None:
        state.timers.cancel(("ping", node_id))
        _admit(state, newcomer)


def _refuse(state: State, newcomer: NodeJoined, holder: Node) -> None:
    state.record(records.NODE_REFUSED, node_id=holder.node_id, reason="NODE_ID_IN_USE")
    state.emit(
        CloseSession(
            newcomer.node_id,
            newcomer.epoch,
            Reason.NODE_ID_IN_USE,
            f"a live agent already has the node id {holder.node_id!r}; give this one another",
            reconnect=False,
        )
    )


def _admit(state: State, event: NodeJoined) -> None:
    """Open the session's books; take over what the agent still holds and we still want."""
    old = state.nodes.get(event.node_id)
    node = Node(event.node_id, event.boot_id, event.epoch, event.spec, state.now, state.now)
    if old is not None:
        node.finished, node.failed = old.finished, old.failed
        node.trust = health.inherit(old, event.boot_id)
        move_health(node, health.restored(state, node))
        same = old.boot_id == node.boot_id
        if same:
            node.drain = old.drain
        if old.availability is NodeAvailability.CORDONED or (
            same and old.availability is not NodeAvailability.ACTIVE
        ):
            node.availability = old.availability
            node.availability_reason = old.availability_reason
        if old.alive and old.boot_id != node.boot_id:
            lose(state, old, "its agent was restarted")
    state.nodes[node.node_id] = node
    _build_engines(node, event.spec, old)
    adopted: list[int] = []
    if old is not None and old.alive:
        adopted = _take_over(state, old, node, {item.dispatch_id for item in event.running})
    for item in event.running:
        if item.orphan is not None and adoption.adopt(state, node, item):
            adopted.append(item.dispatch_id)
    kept = set(adopted)  # membership only
    abandon = list(dict.fromkeys(i.dispatch_id for i in event.running if i.dispatch_id not in kept))
    set_serving_health(node)
    state.emit(WelcomeNode(node.node_id, node.epoch, abandon, adopted))
    drains.tell(state, node)
    state.record(
        records.NODE_JOINED,
        node_id=node.node_id,
        role=event.spec.role,
        models=sorted({m for e in node.engines.values() for m in e.models}),
        adopted=len(adopted),
        abandoned=len(abandon),
    )
    _watch(state, node)
    state.timers.cancel(("lost", node.node_id))
    state.timers.cancel(("forget", node.node_id))
    state.rebuild_pools()
    adoption.note_joined(state)
    if old is None:
        scaling.on_node_joined(state, node)
    if old is None or old.boot_id != node.boot_id:
        _warm_up(state, node)
    gone_models.forget(state)


def _warm_up(state: State, node: Node) -> None:
    """A new process gets its slots little by little where others can work meanwhile."""
    models = dict.fromkeys(m for e in node.engines.values() for m in e.models)
    if any(len(health.nodes_of(state.pools[m])) > 1 for m in models):
        health.warm_up(state, node, state.settings.health.warm_up_new)


def _take_over(state: State, old: Node, node: Node, held: set[int]) -> list[int]:
    """The same agent is back on a new stream: keep what it holds, give back what never arrived."""
    adopted = []
    for attempt in list(old.in_flight.values()):
        ledger.settle(state, attempt)
        live = attempt.dispatch_id in attempt.request.live
        engine = node.engines.get(attempt.engine.engine_id)
        if live and engine is not None and attempt.dispatch_id in held:
            _readopt(state, node, engine, attempt)
            adopted.append(attempt.dispatch_id)
        elif live:
            ledger.end(state, attempt, AttemptState.REFUSED, Reason.REVOKED, "it never arrived")
            failover.give_back(state, attempt)
    if old.connected:
        _close_replaced(state, old.node_id, old.epoch)
    return adopted


def _readopt(state: State, node: Node, engine: Engine, attempt: Attempt) -> None:
    """Enter a held attempt into the new session's books, uncharged (its first credits say so)."""
    attempt.engine = engine
    attempt.sent_index = 0
    node.in_flight[attempt.dispatch_id] = attempt
    engine.in_flight_inputs += attempt.inputs
    engine.in_flight_items += 1
    attempt.batch.held_items += 1
    if attempt.request.request_class is RequestClass.JOB:
        attempt.preempted_for = ""  # a cancel that was on its way went with the old session
        ledger.note_job(state, attempt)
    engine.open_batches[attempt.batch.batch_id] = attempt.batch
    request = attempt.request
    if request.state is RequestState.QUEUED:  # it was queued again when the stream broke
        requests.leave_queue(state, request)
        move_request(request, RequestState.RUNNING if attempt.running else RequestState.DISPATCHED)
    if request.rid in state.blamed:
        apart.blame(state, request)  # its node did not die


def _build_engines(node: Node, spec: NodeSpec, old: Node | None) -> None:
    """Make or refresh the books of each engine; learned times and open work stay."""
    before = old.engines if old is not None else {}
    engines = {}
    for stated in spec.engines:
        engine_spec = replace(stated, models=tuple(replace(m) for m in stated.models))  # our copy
        models = {m.model: m for m in engine_spec.models}
        engine = node.engines.get(engine_spec.engine_id)
        if engine is None:
            engine = Engine(node, engine_spec, models)
            former = before.get(engine_spec.engine_id)
            if former is not None:
                engine.service, engine.slowness = former.service, former.slowness
                engine.batch_times = former.batch_times
        else:
            _keep_health(engine, engine_spec)
        engine.spec, engine.models = engine_spec, models
        capacity = engine_spec.slots + engine_spec.look_ahead
        engine.capacity_peak = max(engine.capacity_peak, capacity)
        engines[engine_spec.engine_id] = engine
    node.spec = replace(spec, engines=tuple(e.spec for e in engines.values()))
    node.engines = engines


def _keep_health(engine: Engine, spec: EngineSpec) -> None:
    """A description says nothing of health: what the last report said holds until the next. A
    model that is new here gets no work before a report that may say that it is still loading.
    """
    spec.healthy, spec.down, spec.word = engine.spec.healthy, engine.spec.down, engine.spec.word
    for model in spec.models:
        known = engine.models.get(model.model)
        model.active = known is not None and known.active
        model.word = known.word if known is not None else "loading"


def set_serving_health(node: Node) -> None:
    """STARTING until an engine is healthy and a model of it active."""
    serving = any(
        e.spec.healthy and any(m.active for m in e.models.values()) for e in node.engines.values()
    )
    if node.health in (NodeHealth.STARTING, NodeHealth.HEALTHY):
        move_health(node, NodeHealth.HEALTHY if serving else NodeHealth.STARTING)


def on_described(state: State, event: NodeDescribed) -> None:
    """Engines, models or slots changed."""
    node = state.session(event.node_id, event.epoch)
    if node is None:
        return
    _build_engines(node, event.spec, None)
    set_serving_health(node)
    state.rebuild_pools()
    gone_models.forget(state)


def on_heard(state: State, event: NodesHeard) -> None:
    """Messages came from these."""
    for node_id, epoch in event.nodes:
        node = state.session(node_id, epoch)
        if node is None:
            continue
        node.last_heard = state.now
        if node.health is NodeHealth.SUSPECT and node.connected:
            _recover(state, node)
        if state.newcomers:
            newcomer = state.newcomers.pop(node_id, None)
            if newcomer is not None:
                state.timers.cancel(("ping", node_id))
                _refuse(state, newcomer, node)


def _recover(state: State, node: Node) -> None:
    state.timers.cancel(("lost", node.node_id))
    move_health(node, health.restored(state, node))
    set_serving_health(node)
    node.state_reason = ""
    state.record(records.NODE_RECOVERED, node_id=node.node_id)
    _watch(state, node)
    state.rebuild_pools()


def on_credits(state: State, event: CreditsGranted) -> None:
    """The agent's running totals of what may be sent."""
    node = state.session(event.node_id, event.epoch)
    if node is None:
        return
    for engine_id, inputs, tokens in event.credits:
        engine = node.engines.get(engine_id)
        if engine is not None:
            engine.credit_inputs = max(engine.credit_inputs, inputs)
            left = engine.credit_inputs - engine.charged_inputs
            if left > engine.capacity_peak:
                engine.capacity_peak = left
            engine.credit_tokens = tokens
            state.touch_engine(engine)


def on_broken(state: State, event: SessionBroken) -> None:
    """The node's stream ended."""
    newcomer = state.newcomers.get(event.node_id)
    if newcomer is not None and newcomer.epoch == event.epoch:
        del state.newcomers[event.node_id]
        return
    node = state.session(event.node_id, event.epoch)
    if node is None:
        return
    node.connected = False
    state.rebuild_pools()
    if event.goodbye and not node.in_flight:
        _leave(state, node)
        on_ping_timeout(state, node.node_id)
        return
    _suspect(state, node, "its stream broke")
    for attempt in list(node.in_flight.values()):
        _move_undelivered(state, attempt)
    on_ping_timeout(state, node.node_id)


def _move_undelivered(state: State, attempt: Attempt) -> None:
    """Nothing of it reached the client: dispatch it elsewhere too; the first to speak wins. Not
    where that is so already, nor where a former scheduler's client may have some of it.
    """
    request = attempt.request
    if (
        attempt.dispatch_id not in request.live
        or attempt.spoke
        or (request.output is not None and request.output.lacks)
        or request.state is RequestState.QUEUED
        or request.charged >= request.max_attempts
        or any(a is not attempt and a.node.connected for a in request.live.values())
    ):
        return
    wait = failover.may_retry(state, attempt)
    if wait is None:
        return  # it waits for its node as long as the resume window lasts
    if attempt.node.incarnation not in request.tried:
        request.tried = (*request.tried, attempt.node.incarnation)
    failover.note_failover(state, attempt)
    apart.blame(state, request)
    if apart.is_suspect(request):
        apart.hold_suspect(state, request)
    else:
        requests.queue_again(state, request, state.now + wait)


def on_silence(state: State, node_id: str) -> None:
    """Look whether the node was heard lately enough."""
    node = state.nodes.get(node_id)
    if node is None or not node.alive or node.health is NodeHealth.SUSPECT:
        return
    due = node.last_heard + state.settings.health.session_timeout
    if due > state.now:
        state.timers.set(("silence", node_id), due)
    else:
        _suspect(state, node, "it fell silent")


def _watch(state: State, node: Node) -> None:
    state.timers.set(
        ("silence", node.node_id), node.last_heard + state.settings.health.session_timeout
    )


def _suspect(state: State, node: Node, why: str) -> None:
    if node.health is NodeHealth.SUSPECT:
        return
    move_health(node, NodeHealth.SUSPECT)
    node.state_reason = why
    state.record(
        records.NODE_SUSPECT, node_id=node.node_id, reason=why, in_flight=len(node.in_flight)
    )
    state.timers.set(("lost", node.node_id), state.now + state.settings.health.resume_window)
    state.rebuild_pools()


def on_window_over(state: State, node_id: str) -> None:
    """The resume window passed without a sign of life."""
    node = state.nodes.get(node_id)
    if node is not None and node.health is NodeHealth.SUSPECT:
        lose(state, node, node.state_reason)


def lose(state: State, node: Node, why: str) -> None:
    """Fence the session off and fail over all that it held."""
    move_health(node, NodeHealth.LOST)
    node.state_reason = why
    node.lost_at = state.now
    state.record(records.NODE_LOST, node_id=node.node_id, reason=why, in_flight=len(node.in_flight))
    if node.connected:
        state.emit(
            CloseSession(
                node.node_id, node.epoch, Reason.NODE_LOST,
                f"this session was given up: {why}; say hello again", reconnect=True,
            )
        )  # fmt: skip
        node.connected = False
    state.rebuild_pools()
    for attempt in list(node.in_flight.values()):
        ledger.settle(state, attempt)
        if attempt.dispatch_id in attempt.request.live:
            node.failed += 1
            ledger.end(state, attempt, AttemptState.LOST, Reason.NODE_LOST, why)
            failover.retry(state, attempt)
    ledger.check_drained(state, node)
    scaling.on_node_gone(state, node)
    _note_empty_pools(state, node)
    state.timers.set(("forget", node.node_id), state.now + state.settings.health.lost_memory)


def _leave(state: State, node: Node) -> None:
    """It said goodbye and held nothing."""
    move_health(node, NodeHealth.LOST)
    node.lost_at = state.now
    why = node.drain.reason if node.drain is not None else ""
    node.state_reason = f"it left: {why}" if why else "it left"
    state.rebuild_pools()
    scaling.on_node_gone(state, node)
    ledger.check_drained(state, node)
    _note_empty_pools(state, node)
    state.timers.set(("forget", node.node_id), state.now + state.settings.health.lost_memory)


def _note_empty_pools(state: State, node: Node) -> None:
    for model in sorted({m for e in node.engines.values() for m in e.models}):
        pool = state.pools[model]
        if not pool.live and len(pool.queue):
            requests.note_no_node(state, pool)


def on_forget(state: State, node_id: str) -> None:
    """A lost node is no longer shown."""
    node = state.nodes.get(node_id)
    if node is not None and not node.alive:
        del state.nodes[node_id]
