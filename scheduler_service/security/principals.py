"""Who is calling, and what may they use?

A gate sets the principal of an RPC or HTTP request before any of our code sees it (`gate.py`,
`http_gate.py`); from then on whatever runs for it asks `current()`. Where no gate has been, that
is NOBODY, who may do nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Flag, auto
from typing import Final

MOST_URGENT: Final = 10


class Right(Flag):
    """What a principal may do. A method needs one of them; see `rules.py`."""

    NONE = 0
    USE = auto()  # send requests
    JOBS = auto()  # store work
    READ = auto()  # see nodes, queues, requests, events
    OPERATE = auto()  # cordon, drain, pause, cancel
    ADMIN = auto()  # change policies and log levels
    AGENT = auto()  # be a node


IMPLIED: Final = {
    Right.ADMIN: Right.ADMIN | Right.OPERATE | Right.READ,
    Right.OPERATE: Right.OPERATE | Right.READ,
}
ALL_RIGHTS: Final = Right.USE | Right.JOBS | Right.READ | Right.OPERATE | Right.ADMIN | Right.AGENT
GRANTABLE: Final = {
    right.name.lower(): right for right in Right if right is not Right.AGENT and right.name
}


class Principal:
    """An authenticated caller. Compared by identity: each credential has its own."""

    __slots__ = (
        "credential", "live", "max_priority", "models", "name", "node_id", "rights", "tenants",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        rights: Right,
        *,
        credential: str = "",
        tenants: tuple[str, ...] | None = None,
        models: frozenset[str] | None = None,
        max_priority: int = MOST_URGENT,
        node_id: str = "",
    ) -> None:
        self.name = name  # in events and audit; part of what a request id is unique in
        self.rights = rights
        self.credential = credential  # id of the token or certificate entry; never a secret
        self.tenants = tenants  # the first is filled in; None: any, and none is filled in
        self.models = models  # None: all
        self.max_priority = max_priority
        self.node_id = node_id  # an agent's, proven by its certificate
        self.live = True  # False: revoked or expired; calls on open streams then fail

    def may(self, right: Right) -> bool:
        """Whether it has that right."""
        return right in self.rights

    def may_see(self, tenant: str) -> bool:
        """Whether what belongs to this tenant may be shown to it."""
        return self.tenants is None or tenant in self.tenants

    def __repr__(self) -> str:
        return f"Principal({self.name!r}, {self.rights!r})"


NOBODY: Final = Principal("nobody", Right.NONE, tenants=(), models=frozenset(), max_priority=0)
# Everybody, where authentication is off.
LOCAL: Final = Principal("", ALL_RIGHTS)

_current: ContextVar[Principal] = ContextVar("principal", default=NOBODY)


def current() -> Principal:
    """On whose behalf this runs."""
    return _current.get()


def become(principal: Principal) -> None:
    """For gates: from here on, this task and those it starts run for `principal`."""
    _current.set(principal)
