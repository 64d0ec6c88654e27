"""Tenants, models and priorities: what a principal may ask for."""

from __future__ import annotations

import pytest

from batchyard.v1 import types_pb2
from scheduler_service.core.types import Request
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.permits import permit, tenant_of
from scheduler_service.security.principals import LOCAL, NOBODY, Principal, Right

ALICE = Principal(
    "alice", Right.USE, tenants=("a", "b"), models=frozenset({"m", "small"}), max_priority=7
)


def asked(**fields: object) -> Request:
    return Request(1, "r", **{"model": "m", **fields})  # type: ignore[arg-type]


def denied(principal: Principal, request: Request, *given: str) -> tuple[str, int]:
    with pytest.raises(Refused) as caught:
        permit(principal, request, given)
    return caught.value.error.field, caught.value.error.reason


def test_an_empty_tenant_is_filled_in_and_a_foreign_one_denied() -> None:
    request = asked()
    permit(ALICE, request, ())
    assert request.tenant == "a"
    permit(ALICE, asked(tenant="b"), ("tenant",))
    code = types_pb2.ERROR_REASON_PERMISSION_DENIED
    assert denied(ALICE, asked(tenant="c"), "tenant") == ("tenant", code)


def test_who_is_bound_to_no_tenant_speaks_for_any_and_for_none() -> None:
    free = Principal("free", Right.USE)
    assert [tenant_of(free, tenant) for tenant in ("", "x")] == ["", "x"]


def test_the_local_principal_may_everything_and_nobody_nothing() -> None:
    request = asked(priority=10, tenant="x")
    permit(LOCAL, request, ("priority", "tenant"))
    assert (request.priority, request.tenant) == (10, "x")
    assert denied(NOBODY, asked())[0] == "tenant"


def test_models_are_checked_and_defaults_cut_to_what_is_allowed() -> None:
    assert denied(ALICE, asked(model="huge"))[0] == "model"
    assert denied(ALICE, asked(degrade=("small", "huge")), "degrade")[0] == "degrade.models"
    request = asked(degrade=("huge", "small"))
    permit(ALICE, request, ())
    assert request.degrade == ("small",)


def test_a_chosen_priority_is_denied_and_a_default_one_cut() -> None:
    assert denied(ALICE, asked(priority=8), "priority")[0] == "priority"
    request = asked(priority=9)
    permit(ALICE, request, ())
    assert request.priority == 7


def test_calls_on_a_stream_end_with_its_credential() -> None:
    gone = Principal("gone", Right.USE)
    gone.live = False
    assert denied(gone, asked())[1] == types_pb2.ERROR_REASON_UNAUTHENTICATED
