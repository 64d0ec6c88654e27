"""What do an agent's messages mean to the core?

Node messages become `NodeSpec`s and events. What breaks a rule of the protocol raises
`SessionRefused`, which says what and where; numbers of enums that are not known never raise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Final

from google.protobuf.duration_pb2 import Duration as DurationProto
from google.protobuf.message import DecodeError

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.events import ItemEnd, ReportReceived, RunningItem
from scheduler_service.core.outcomes import EngineMode, Reason
from scheduler_service.core.types import (
    NEVER,
    SECOND,
    BatchRules,
    Duration,
    EngineSpec,
    ModelSpec,
    NodeSpec,
)
from scheduler_service.rpc import status
from scheduler_service.rpc.node_settings import OLDEST_PROTOCOL_VERSION, Identity
from service_kit import wire_walk

MANAGED_LABEL: Final = "batchyard.managed"  # "true" on nodes that an autoscaler started
ASSUMED_TOKENS: Final = 128  # of an output, where a profile gives the time of one token
MESSAGE_CHARS: Final = 1024  # of an agent's words that are kept
# Of one node.
ENGINES_MAX: Final = 64
MODELS_MAX: Final = 1_000
LABELS_MAX: Final = 64
TASK_TYPES_MAX: Final = 64
SLOTS_MAX: Final = 1 << 20  # of an engine
GPUS_MAX: Final = 256
ENTRIES_MAX: Final = 1 << 16  # of a list in one message
PRICE_MAX: Final = 10**15  # millionths of its currency, an hour; some have small units
# Of a profile; what is beyond cannot be meant, and is not taken.
TIME_MAX: Final[Duration] = 24 * 3600 * SECOND
RATE_MIN: Final = 1e-3  # tokens per second
LOCATED_MAX: Final = 16  # unreadable answers of a message in which the fault is looked for (10 ms)

_NONE: Final = Reason.NONE  # a look-up costs 70 ns on the path of every result
_NOTHING: Final[dict[str, str]] = {}  # stands for all metadata that says nothing
_NODE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_MODES: Final = {
    pb.ENGINE_MODE_STATIC: EngineMode.STATIC,
    pb.ENGINE_MODE_CONTINUOUS: EngineMode.CONTINUOUS,
}
_WORDS: Final = {
    types_pb2.MODEL_STATE_LOADING: "loading",
    types_pb2.MODEL_STATE_UNLOADING: "unloading",
    types_pb2.MODEL_STATE_FAILED: "failed",
}
_REASONS: Final = {int(reason): reason for reason in Reason if reason is not Reason.NONE}
_BY_CODE: Final = {  # google.rpc.Code: for reasons that this version does not know
    1: Reason.CANCELLED_BY_CLIENT,
    3: Reason.INVALID_ARGUMENT,
    4: Reason.ENGINE_STALLED,
    5: Reason.MODEL_NOT_FOUND,
    7: Reason.PERMISSION_DENIED,
    8: Reason.ENGINE_BUSY,
    11: Reason.INVALID_ARGUMENT,
    12: Reason.UNSUPPORTED_FEATURE,
    14: Reason.ENGINE_UNAVAILABLE,
}
_BY_FINISH: Final = {  # of a result without an error
    types_pb2.FINISH_REASON_STOP: Reason.NONE,
    types_pb2.FINISH_REASON_LENGTH: Reason.NONE,
    types_pb2.FINISH_REASON_TOOL_CALLS: Reason.NONE,
    types_pb2.FINISH_REASON_CONTENT_FILTER: Reason.NONE,
    types_pb2.FINISH_REASON_COMPLETE: Reason.NONE,
    types_pb2.FINISH_REASON_CANCELLED: Reason.CANCELLED_BY_CLIENT,
    types_pb2.FINISH_REASON_EXPIRED: Reason.DEADLINE_EXCEEDED,
}
_ANSWERS: Final = frozenset(f for f, reason in _BY_FINISH.items() if reason is Reason.NONE)

Services = Mapping[tuple[str, str], Duration]  # by engine id and model


class SessionRefused(Exception):
    """The session cannot go on: the peer broke a rule. `reconnect`: a new one may do better.
    `dispatch_id`: the item whose output broke it, so that it does not break the next one, too.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        field: str = "",
        metadata: Mapping[str, str] | None = None,
        reconnect: bool = False,
        dispatch_id: int = 0,
    ) -> None:
        super().__init__(message)
        self.error = status.error(reason, message, field=field, metadata=metadata)
        self.reconnect = reconnect
        self.dispatch_id = dispatch_id


def violation(message: str, field: str = "", *, dispatch_id: int = 0) -> SessionRefused:
    """The peer broke the protocol in the midst of its work; its next session may keep to it."""
    reason = Reason.PROTOCOL_VIOLATION
    return SessionRefused(reason, message, field=field, reconnect=True, dispatch_id=dispatch_id)


def _invalid(field: str, must: str) -> SessionRefused:
    return SessionRefused(Reason.INVALID_ARGUMENT, f"{field} {must}", field=field)


def check_hello(hello: pb.Hello, identity: Identity) -> None:
    """Whether this agent can be talked to at all.

    Raises:
        SessionRefused: it cannot, and why.
    """
    if not _NODE_ID.match(hello.node_id):
        raise _invalid("hello.node_id", "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -")
    if not 1 <= len(hello.boot_id) <= 64:
        raise _invalid("hello.boot_id", "must have 1 to 64 characters, new ones at each start")
    if len(hello.running_items) > SLOTS_MAX:
        raise _invalid("hello.running_items", f"are more than {SLOTS_MAX:,}")
    if hello.protocol_version < OLDEST_PROTOCOL_VERSION:
        raise SessionRefused(
            Reason.UNSUPPORTED_FEATURE,
            f"the agent speaks protocol version {hello.protocol_version}, the oldest that is "
            f"understood here is {OLDEST_PROTOCOL_VERSION}: update the agent",
            field="hello.protocol_version",
            metadata={"feature": f"protocol_version {OLDEST_PROTOCOL_VERSION}"},
        )
    if hello.cluster_id == identity.cluster_id and hello.highest_term > identity.term:
        raise SessionRefused(
            Reason.STALE_TERM,
            f"this scheduler's term {identity.term} is over: the agent has seen "
            f"{hello.highest_term}; dial the newer scheduler",
            metadata={"term": str(hello.highest_term)},
            reconnect=True,
        )


def running_items(hello: pb.Hello) -> list[RunningItem]:
    """What a (re)connecting agent still holds."""
    finished = pb.ITEM_STATE_FINISHED
    return [RunningItem(i.dispatch_id, i.state == finished) for i in hello.running_items]


def node_spec(
    descriptor: pb.NodeDescriptor, report: pb.NodeReport | None, *, path: str = "descriptor"
) -> NodeSpec:
    """The node as the core sees it; health and loaded models as in its last report.

    Raises:
        SessionRefused: a field is not what the protocol says it is.
    """
    _check_sizes(descriptor, path)
    loads = {load.engine_id: load for load in report.engines} if report is not None else {}
    engines = tuple(
        _engine(engine, loads.get(engine.engine_id), f"{path}.engines[{index}]")
        for index, engine in enumerate(descriptor.engines)
    )
    ids = [engine.engine_id for engine in engines]
    if len(set(ids)) < len(ids):
        raise _invalid(f"{path}.engines", f"name an engine id twice: {_twice(ids)}")
    return NodeSpec(
        engines=engines,
        role=descriptor.role or "primary",
        task_types=tuple(descriptor.task_types),
        managed=descriptor.labels.get(MANAGED_LABEL) == "true",
        labels=dict(descriptor.labels),
    )


def _check_sizes(descriptor: pb.NodeDescriptor, path: str) -> None:
    """What a node names stays in the scheduler's tables and metrics, so it has bounds."""
    if not descriptor.engines:
        raise _invalid(f"{path}.engines", "is empty: a node has at least one engine")
    if not 0 <= descriptor.price_per_hour.micros <= PRICE_MAX:
        raise _invalid(f"{path}.price_per_hour.micros", f"must be 0 to {PRICE_MAX:,}")
    models = sum(len(engine.models) for engine in descriptor.engines[: ENGINES_MAX + 1])
    for field, number, most in (
        ("engines", len(descriptor.engines), ENGINES_MAX),
        ("engines.models", models, MODELS_MAX),
        ("gpus", len(descriptor.gpus), GPUS_MAX),
        ("labels", len(descriptor.labels), LABELS_MAX),
        ("task_types", len(descriptor.task_types), TASK_TYPES_MAX),
    ):
        if number > most:
            raise _invalid(f"{path}.{field}", _too_many(number, most))


def _too_many(number: int, most: int) -> str:
    return f"are {number:,}; at most {most:,} are allowed"


def _twice(names: Sequence[str]) -> str:
    """The names that stand there more than once, but not without end."""
    found = sorted(name for name, number in Counter(names).items() if number > 1)
    return ", ".join(found[:5])


def _engine(engine: pb.EngineDescriptor, load: pb.EngineLoad | None, path: str) -> EngineSpec:
    if not 1 <= len(engine.engine_id) <= 64:
        raise _invalid(f"{path}.engine_id", "must have 1 to 64 characters")
    mode = _MODES.get(engine.mode)
    if mode is None:
        raise _invalid(
            f"{path}.mode",
            f"must be ENGINE_MODE_STATIC or ENGINE_MODE_CONTINUOUS; {engine.mode} is neither",
        )
    if not 1 <= engine.slots <= SLOTS_MAX:
        raise _invalid(f"{path}.slots", f"must be 1 to {SLOTS_MAX:,}")
    inactive = set(_inactive(load)) if load is not None else set()
    words = _words(load) if load is not None else {}
    services = _services(engine, load)
    profiles = {m.model: m.profile for m in load.models} if load is not None else {}
    models = []
    for index, model in enumerate(engine.models):
        if not 1 <= len(model.model) <= 256:
            raise _invalid(f"{path}.models[{index}].model", "must have 1 to 256 characters")
        models.append(_model(model, inactive, services.get(model.model, 0)))
        models[-1].word = words.get(model.model, "")
        if model.model in profiles:
            _take_profile(models[-1], mode, profiles[model.model])
    names = [model.model for model in models]
    if len(set(names)) < len(names):
        raise _invalid(f"{path}.models", f"name a model twice: {_twice(names)}")
    return EngineSpec(
        engine_id=engine.engine_id,
        mode=mode,
        slots=engine.slots,
        max_batch_size=engine.max_batch_size,
        look_ahead=engine.look_ahead,
        kv_capacity=engine.kv_capacity_tokens,
        rules=_rules(engine.batch_key, f"{path}.batch_key"),
        models=tuple(models),
        healthy=load is None or not _unhealthy(load),
        down=load is not None and load.health == pb.ENGINE_HEALTH_DOWN,
        word=_unhealthy(load) if load is not None else "",
    )


def _model(model: pb.ModelDescriptor, inactive: set[str], service: Duration) -> ModelSpec:
    return ModelSpec(
        model=model.model,
        base_model=model.base_model,
        context_length=model.context_length,
        max_concurrency=model.max_concurrency,
        resumable=model.resumable,
        streaming=model.streaming,
        task_types=tuple(model.task_types),
        features=tuple(model.features),
        active=model.model not in inactive,
        configured_service=service,
    )


def _take_profile(model: ModelSpec, mode: EngineMode, profile: pb.ServiceProfile) -> None:
    """What the profile says of prompts and tokens, or batches; only points that rise, and are of
    this world, count.
    """
    times: list[tuple[int, Duration]] = []
    for point in profile.points:
        time = nanoseconds(point.time)
        if point.concurrency > (times[-1][0] if times else 0) and 0 < time <= TIME_MAX:
            times.append((point.concurrency, time))
    if mode is EngineMode.STATIC:
        model.batch_times = tuple(times)
        return
    model.token_times = tuple(times)
    rate = profile.prefill_tokens_per_second
    if math.isfinite(rate) and rate >= RATE_MIN:
        model.prefill_rate = rate


def _rules(rules: pb.BatchKeyRules, path: str) -> BatchRules:
    ratio = rules.max_length_ratio
    if not math.isfinite(ratio) or (ratio != 0 and ratio < 1):
        raise _invalid(f"{path}.max_length_ratio", "must be 1 or more, or 0 for no limit")
    return BatchRules(equal=tuple(rules.equal), max_length_ratio=ratio, max_tokens=rules.max_tokens)


def _unhealthy(load: pb.EngineLoad) -> str:
    """Why it cannot serve, in a word; empty: it can, or does not say."""
    if load.health in (pb.ENGINE_HEALTH_SERVING, pb.ENGINE_HEALTH_UNSPECIFIED):
        return ""
    known = pb.EngineHealth.DESCRIPTOR.values_by_number.get(load.health)
    return known.name.removeprefix("ENGINE_HEALTH_").lower() if known else f"health {load.health}"


def _inactive(load: pb.EngineLoad) -> list[str]:
    """Models that are not served now. One whose state is not said is."""
    served = (types_pb2.MODEL_STATE_UNSPECIFIED, types_pb2.MODEL_STATE_ACTIVE)
    return [model.model for model in load.models if model.state not in served]


def _words(load: pb.EngineLoad) -> dict[str, str]:
    """Why models are not served now, where it is said."""
    return {model.model: _WORDS[model.state] for model in load.models if model.state in _WORDS}


def _services(engine: pb.EngineDescriptor, load: pb.EngineLoad | None) -> dict[str, Duration]:
    """Mean service time of a lone request by the models' profiles, where they have one."""
    per_token = engine.mode == pb.ENGINE_MODE_CONTINUOUS
    found = {}
    for model in load.models if load is not None else ():
        points = model.profile.points
        if points:
            mean = min(nanoseconds(points[0].time), TIME_MAX)
            found[model.model] = mean * ASSUMED_TOKENS if per_token else mean
    return found


def services(descriptor: pb.NodeDescriptor, report: pb.NodeReport) -> Services:
    """Service times by the profiles in a report."""
    loads = {load.engine_id: load for load in report.engines}
    return {
        (engine.engine_id, model): service
        for engine in descriptor.engines
        for model, service in _services(engine, loads.get(engine.engine_id)).items()
    }


def check_length(entries: Sized, field: str) -> None:
    """Whether a list of one message is as short as the protocol says: to handle it must not hold up
    everybody else.

    Raises:
        SessionRefused: it is not.
    """
    if len(entries) > ENTRIES_MAX:
        raise violation(
            f"{field} has {len(entries):,} entries; at most {ENTRIES_MAX:,} go in one message",
            field,
        )


def check_report(report: pb.NodeReport, path: str = "report") -> None:
    """Whether it is of a size that a node may have; it stays in tables and metrics.

    Raises:
        SessionRefused: it is not.
    """
    engines = report.engines
    for field, number, most in (
        ("engines", len(engines), ENGINES_MAX),
        ("engines.models", sum(len(load.models) for load in engines[:ENGINES_MAX]), MODELS_MAX),
        ("gpus", len(report.gpus), GPUS_MAX),
        ("named_metrics", len(report.named_metrics), LABELS_MAX),
    ):
        if number > most:
            raise violation(f"{path}.{field} {_too_many(number, most)}", f"{path}.{field}")
    held = sum(len(e.running_dispatch_ids) + len(e.waiting_dispatch_ids) for e in engines)
    if held > SLOTS_MAX:
        text = f"{path} names {held:,} items; at most {SLOTS_MAX:,} are held by a node"
        raise violation(text, f"{path}.engines")


def report_event(node_id: str, epoch: int, report: pb.NodeReport) -> ReportReceived:
    """What really runs, and what cannot serve."""
    event = ReportReceived(node_id, epoch, report.items_received, {})
    for load in report.engines:
        held = event.held.setdefault(load.engine_id, [])
        held.extend(load.running_dispatch_ids)
        held.extend(load.waiting_dispatch_ids)
        word = _unhealthy(load)
        if word:
            event.unhealthy[load.engine_id] = word
            if load.health == pb.ENGINE_HEALTH_DOWN:
                event.down.append(load.engine_id)
        inactive = _inactive(load)
        if inactive:
            event.inactive_models[load.engine_id] = inactive
            words = _words(load)
            if words:
                event.inactive_words[load.engine_id] = words
        preemptions = load.preemptions if load.HasField("preemptions") else None
        kv_use = load.kv_utilization if load.HasField("kv_utilization") else None
        if preemptions is not None or kv_use is not None:
            event.pressure[load.engine_id] = (preemptions, kv_use)
    return event


def credit_totals(totals: Iterable[pb.Credit]) -> list[tuple[str, int, int | None]]:
    """Running totals by engine id."""
    return [
        (c.engine_id, c.total_inputs, c.total_tokens if c.HasField("total_tokens") else None)
        for c in totals
    ]


def running_ids(updates: Iterable[pb.ItemUpdate]) -> list[int]:
    """Items that an engine began."""
    begun = (pb.ITEM_STATE_RUNNING, pb.ITEM_STATE_FIRST_TOKEN)
    return [update.dispatch_id for update in updates if update.state in begun]


def item_end(result: wire_pb2.PackedItemResult) -> ItemEnd:
    """One item's end. What is not known to be an answer is an engine's error."""
    finish, usage, failed = result.finish_reason, result.usage, result.HasField("error")
    end = ItemEnd(
        result.dispatch_id,
        _NONE,
        "",
        result.refused,
        usage.input_tokens,
        usage.output_tokens,
        result,
        _NOTHING,
        finish,
    )
    if finish in _ANSWERS and not failed and not end.refused:
        return end
    if failed:
        error = result.error
        end.reason = _reason(error, result.finish_reason)
        end.message = error.message[:MESSAGE_CHARS]
        end.metadata = dict(error.metadata)
    else:
        end.reason = _BY_FINISH.get(result.finish_reason, Reason.ENGINE_ERROR)
        if end.refused and end.reason in (Reason.NONE, Reason.ENGINE_ERROR):
            end.reason = Reason.ENGINE_BUSY
        if end.reason is not Reason.NONE:
            end.message = f"its node gave no error; its finish reason is {result.finish_reason}"
    return end


def end_for(refusal: SessionRefused) -> ItemEnd:
    """The end of the item whose output broke a rule. Were it adopted when its agent comes back, its
    output would come again, and end that session, too, and so on.
    """
    text = f"its node broke the protocol: {refusal}"
    return ItemEnd(refusal.dispatch_id, Reason.ENGINE_ERROR, text[:MESSAGE_CHARS])


def fail_unreadable(results: Iterable[wire_pb2.PackedItemResult]) -> None:
    """Answers go on to clients as the bytes that came: one that is none becomes its engine's error,
    so that no client gets a message that it cannot read, and the others are taken as they are.
    """
    found = 0
    for result in results:
        data = result.SerializeToString()
        try:
            pb.ItemResult.FromString(data)
        except DecodeError:
            found += 1
            where = wire_walk.locate(data, pb.ItemResult) if found <= LOCATED_MAX else ""
            for name in ("outputs", "timings", "error"):
                result.ClearField(name)
            result.finish_reason = types_pb2.FINISH_REASON_ERROR
            text = f"its node's answer is no valid protobuf at {where or 'its result'}"
            result.error.CopyFrom(status.error(Reason.ENGINE_ERROR, text))


def _reason(error: types_pb2.Error, finish: int) -> Reason:
    known = _REASONS.get(error.reason)
    if known is not None:
        return known
    if finish == types_pb2.FINISH_REASON_EXPIRED:
        return Reason.DEADLINE_EXCEEDED
    return _BY_CODE.get(error.code, Reason.ENGINE_ERROR)


def nanoseconds(duration: DurationProto) -> Duration:
    """A length from the wire, from 0 to NEVER."""
    return min(NEVER, max(0, duration.seconds * SECOND + duration.nanos))
