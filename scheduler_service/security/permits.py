"""May this principal ask for this? Tenants, models and priorities, checked for every request.

On the path of every call of a Multiplex stream: for the local principal one comparison, for others
a few.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Request
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.principals import LOCAL, Principal

ENDED: Final = "the credential of this stream was revoked or has expired; open a new one"


def permit(principal: Principal, request: Request, given: Container[str]) -> None:
    """Fill in the tenant, and check what was asked for.

    Args:
        principal: who asks.
        request: with defaults filled in; what the caller did not choose is cut to what it may.
        given: names of the fields that it chose.

    Raises:
        Refused: naming the field of the InferenceRequest.
    """
    if principal is LOCAL:
        return
    if not principal.live:
        raise Refused(ENDED, reason=Reason.UNAUTHENTICATED)
    request.tenant = tenant_of(principal, request.tenant)
    if principal.models is not None:
        _check_models(principal, request, given)
    if request.priority > principal.max_priority:
        if "priority" in given:
            raise _denied(
                f"{principal.name!r} may use priorities up to {principal.max_priority}, "
                f"not {request.priority}",
                "priority",
            )
        request.priority = principal.max_priority


def tenant_of(principal: Principal, tenant: str, field: str = "tenant") -> str:
    """The tenant that is meant: an empty one is filled in.

    Raises:
        Refused: it is not the principal's.
    """
    tenants = principal.tenants
    if tenants is None or tenant in tenants:
        return tenant
    if not tenant and tenants:
        return tenants[0]
    raise _denied(f"{principal.name!r} may not speak for tenant {tenant[:64]!r}", field)


def _check_models(principal: Principal, request: Request, given: Container[str]) -> None:
    models = principal.models
    assert models is not None
    if request.model not in models:
        raise _denied(f"{principal.name!r} may not use model {request.model[:64]!r}", "model")
    foreign = [model for model in request.degrade if model not in models]
    if foreign and "degrade" in given:
        raise _denied(f"{principal.name!r} may not use model {foreign[0][:64]!r}", "degrade.models")
    if foreign:
        request.degrade = tuple(model for model in request.degrade if model in models)


def _denied(text: str, field: str) -> Refused:
    return Refused(text, field=field, reason=Reason.PERMISSION_DENIED)
