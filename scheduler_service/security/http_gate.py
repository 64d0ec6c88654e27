"""Who is let through to which HTTP path? The same rules as for gRPC, in front of every handler.

When a credential ends, so do the answers that are still being written to its bearer. Where nobody
authenticates and the port is on loopback, requests under another name than this machine's are
refused: a page that somebody's browser got from elsewhere can have its own name point here, and
would then read what this port shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from scheduler_service.clock import Clock
from scheduler_service.security.access import Access
from scheduler_service.security.principals import LOCAL, NOBODY, Principal, become
from scheduler_service.security.refusals import Place, Refusals
from scheduler_service.security.rules import HTTP, Rule
from service_kit.addresses import is_local_name

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_SCHEME: Final = "bearer "
HOST_MAX: Final = 100  # of a refused name
PATH_MAX: Final = 200  # characters of it in a log line


class HttpGate:
    """The check, as a middleware of aiohttp."""

    def __init__(
        self,
        access: Access | None,
        refusals: Refusals | None = None,
        *,
        on_loopback: bool = False,
    ) -> None:
        """`access`: None where authentication is off. `on_loopback`: where the port is bound."""
        self._access = access
        self._refusals = refusals or Refusals(Clock())
        self._checks_host = on_loopback and access is None
        self._open: dict[Principal, dict[asyncio.Task[None], None]] = {}
        if access is not None:
            access.on_end.append(self._end_all)

    def check(self) -> Middleware:
        """What an application is to be given."""
        from aiohttp import web

        @web.middleware
        async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            path = request.path if resource is None else resource.canonical
            rule = HTTP.get(("GET" if request.method == "HEAD" else request.method, path))
            answer = self._judge(request, rule, known_path=resource is not None)
            if isinstance(answer, Principal):
                become(answer)
                return await self._run(answer, request, handler)
            code, text = answer
            self._tell(request, code, text)
            headers = {"WWW-Authenticate": "Bearer"} if code == 401 else {}
            return web.json_response({"error": text}, status=code, headers=headers)

        return checked

    async def _run(
        self, caller: Principal, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Let it run; the end of its credential ends it."""
        task = request.task
        mine = self._open.setdefault(caller, {})
        mine[task] = None
        try:
            return await handler(request)
        finally:
            del mine[task]
            if not mine:
                self._open.pop(caller, None)

    def _end_all(self, principal: Principal) -> None:
        """Its credential has ended; what it was being answered breaks off."""
        for task in self._open.get(principal, ()):
            task.cancel()

    def _tell(self, request: web.Request, code: int, text: str) -> None:
        reason = "UNAUTHENTICATED" if code == 401 else "PERMISSION_DENIED"
        method = f"{request.method} {request.path[:PATH_MAX]}"
        self._refusals.tell(Place.HTTP, reason, text, method=method, address=request.remote or "")

    def _judge(
        self, request: web.Request, rule: Rule | None, *, known_path: bool
    ) -> Principal | tuple[int, str]:
        """On whose behalf the handler runs, or a refusal."""
        principal = LOCAL if self._access is None else self._known(request)
        if rule is not None and rule.open:
            return principal or NOBODY
        if self._checks_host and not is_local_name(request.host):
            return 403, (
                f"this port is for this machine, not for {request.host[:HOST_MAX]!r}: ask for "
                "localhost, or let callers authenticate (auth.file)"
            )
        if principal is None:
            return 401, "a valid token is needed: Authorization: Bearer TOKEN"
        if rule is None:
            if not known_path or request.match_info.http_exception is not None:
                return principal  # the router's own answer: there is no such path or method
            log.error(
                "%s %s has no rule and is refused to all",
                request.method,
                request.path,
                extra={"event": "no_rule"},
            )
            return 403, "nobody may call this path: it has no rule"
        if rule.right not in principal.rights:
            return 403, f"{principal.name!r} has no right to this"
        return principal

    def _known(self, request: web.Request) -> Principal | None:
        text = request.headers.get("Authorization", "")
        if self._access is None or text[: len(_SCHEME)].lower() != _SCHEME:
            return None
        return self._access.by_token(text[len(_SCHEME) :].strip())
