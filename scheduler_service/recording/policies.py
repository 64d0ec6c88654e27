"""Which policies were in force? By their names in the registry, with their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler_service.core.interfaces import PolicySet
from scheduler_service.policies import REGISTRY, UnknownPolicyError, build, make
from scheduler_service.recording import codec

# The question of each attribute of `PolicySet` that holds one policy.
QUESTIONS: Final[Mapping[str, str]] = {
    "ordering": "order",
    "admission": "admission",
    "former": "batch",
    "scorer": "score",
    "picker": "pick",
    "degrade": "degrade",
    "failover": "failover",
    "autoscale": "autoscale",
    "health": "health",
    "preemption": "preempt",
}


def encode(policies: PolicySet) -> dict[str, Any]:
    """For the head of a recording.

    Raises:
        UnknownPolicyError: one of them has no name.
    """
    named = {
        question: _encode_one(question, getattr(policies, attribute))
        for attribute, question in QUESTIONS.items()
    }
    own = {pool: _encode_one("order", policy) for pool, policy in policies.orderings.items()}
    return {"policies": named, "orderings": own}


def decode(given: Mapping[str, Any]) -> PolicySet:
    """Fresh ones, as they were at the start.

    Raises:
        UnknownPolicyError: this version has no policy of such a name.
        CodecError: or not such an option.
    """
    names = {question: name for question, (name, _) in given["policies"].items()}
    options = {
        question: _options(question, name, options)
        for question, (name, options) in given["policies"].items()
    }
    orderings = {
        pool: make("order", name, **_options("order", name, options))
        for pool, (name, options) in given["orderings"].items()
    }
    return build(names, options, orderings)


def _encode_one(question: str, policy: Any) -> list[Any]:
    for name, kind in REGISTRY[question].items():
        if type(policy) is kind:
            return [name, codec.encode(policy)]
    raise UnknownPolicyError(f"{question}: {policy!r} has no name, so it cannot be recorded")


def _options(question: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    kind: Any = REGISTRY[question].get(name)
    if kind is None:
        raise UnknownPolicyError(f"{question}: this version has no policy {name!r}")
    policy = codec.decode(kind, given)
    return {field.name: getattr(policy, field.name) for field in codec.written(kind)}
