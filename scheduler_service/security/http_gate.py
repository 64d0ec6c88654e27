"""Who is let through to which HTTP path? The same rules as for gRPC, in front of every handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from scheduler_service.clock import Clock
from scheduler_service.security.access import Access
from scheduler_service.security.principals import LOCAL, NOBODY, Principal, become
from scheduler_service.security.refusals import Place, Refusals
from scheduler_service.security.rules import HTTP, Rule

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_SCHEME: Final = "bearer "
PATH_MAX: Final = 200  # characters of it in a log line


class HttpGate:
    """The check, as a middleware of aiohttp."""

    def __init__(self, access: Access | None, refusals: Refusals | None = None) -> None:
        """`access`: None where authentication is off."""
        self._access = access
        self._refusals = refusals or Refusals(Clock())

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
                return await handler(request)
            code, text = answer
            self._tell(request, code, text)
            headers = {"WWW-Authenticate": "Bearer"} if code == 401 else {}
            return web.json_response({"error": text}, status=code, headers=headers)

        return checked

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
        if principal is None:
            return 401, "a valid token is needed: Authorization: Bearer TOKEN"
        if rule is None:
            if not known_path or request.match_info.http_exception is not None:
                return principal  # the router's own answer: there is no such path or method
            log.error("%s %s has no rule and is refused to all", request.method, request.path)
            return 403, "nobody may call this path: it has no rule"
        if rule.right not in principal.rights:
            return 403, f"{principal.name!r} has no right to this"
        return principal

    def _known(self, request: web.Request) -> Principal | None:
        text = request.headers.get("Authorization", "")
        if self._access is None or text[: len(_SCHEME)].lower() != _SCHEME:
            return None
        return self._access.by_token(text[len(_SCHEME) :].strip())
