"""Who is let through to which gRPC method? One interceptor for every service of every port.

The rule of a method comes from `rules.py`. Tokens and certificates are checked before anything of
the request is read, so that a caller whom nobody knows holds nothing open. On a stream this happens
once. When
a credential ends, so do the RPCs that came with it: with UNAUTHENTICATED.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

import grpc

from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import Reason
from scheduler_service.rpc import status
from scheduler_service.security.access import Access, Proof
from scheduler_service.security.principals import LOCAL, NOBODY, Principal, become
from scheduler_service.security.refusals import Place, Refusals
from scheduler_service.security.rules import RPCS, Rule
from scheduler_service.telemetry.rpc_times import RpcTimes

log = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = grpc.aio.ServicerContext[Any, Any]
_SCHEME: Final = "bearer "
_NAMES: Final = "x509_subject_alternative_name"
_PEM: Final = "x509_pem_cert"
PART_S: Final = 0.1  # for a caller who is refused to have written its first message
_BRIEF: Final = "/grpc.reflection."  # streams that nobody needs for long

UNKNOWN: Final = (
    Reason.UNAUTHENTICATED,
    (
        "a valid credential is needed: metadata `authorization: Bearer TOKEN`, or a certificate "
        "that this scheduler knows"
    ),
)
NO_RULE: Final = (Reason.PERMISSION_DENIED, "nobody may call this method: it has no rule")
TOO_LONG: Final = (Reason.DEADLINE_EXCEEDED, "this stream was open for too long")
NO_REQUEST: Final = (Reason.INVALID_ARGUMENT, "the request of this call did not come")
ENDED: Final = (Reason.UNAUTHENTICATED, "the credential of this call was revoked or has expired")


# What our own handlers refuse for the same reasons, by number of the status.
_DENIED: Final = {
    code.value[0]: code.name
    for code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
}


_generates: Final = lru_cache(maxsize=256)(inspect.isasyncgenfunction)  # asked at each call


class _Refusal(Exception):
    """The caller may not call this."""

    def __init__(self, why: tuple[Reason, str], principal: str = "") -> None:
        super().__init__(why[1])
        self.why = why
        self.principal = principal


class _Asked:
    """An RPC at the gate."""

    __slots__ = ("context", "method", "streaming")

    def __init__(self, method: str, streaming: bool, context: Context) -> None:
        self.method = method
        self.streaming = streaming  # of requests
        self.context = context


class Gate(grpc.aio.ServerInterceptor):
    """The interceptor. One for all servers."""

    def __init__(
        self,
        access: Access | None = None,
        *,
        tokens: bool = False,
        refusals: Refusals | None = None,
        first_message_s: float = 30.0,
        idle_stream_s: float = 900.0,
    ) -> None:
        """`tokens`: whether callers must prove who they are; else those without a certificate of
        an agent are the local principal, who may do everything.
        """
        self._access = access
        self._tokens = tokens
        self._first_message_s = first_message_s
        self._idle_stream_s = idle_stream_s
        self._open: dict[Principal, dict[asyncio.Task[Any], None]] = {}
        # By method: what it was made of, and the handler of the local principal.
        self._local: dict[str, tuple[Handler, Handler]] = {}
        self.refusals = refusals or Refusals(Clock())
        self.times = RpcTimes()
        if access is not None:
            access.on_end.append(self._end_all)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's own handler behind the check, or one that refuses."""
        named: Any = handler_call_details.method
        method: str = named if isinstance(named, str) else named.decode()
        found = await continuation(handler_call_details)
        if found is None:
            return None  # UNIMPLEMENTED: this port has no such method
        rule = RPCS.get(method)
        if rule is None:
            log.error(
                "method %s has no rule and is refused to all", method, extra={"event": "no_rule"}
            )
            return self._refusing(method, NO_RULE, found)
        if self._access is None or not self._tokens:
            kept = self._local.get(method)
            if kept is None or kept[0] is not found:
                kept = self._local[method] = (found, self._wrapped(method, found, rule, LOCAL))
            return kept[1]
        token, given = _bearer(handler_call_details.invocation_metadata)
        if not given:
            return self._wrapped(method, found, rule, None)
        principal = self._access.by_token(token)
        if principal is None:
            return self._refusing(method, UNKNOWN, found)
        # An agent's certificate wins over a token, so that is settled when the method is called.
        return self._wrapped(method, found, rule, principal)

    def _wrapped(
        self, method: str, found: Handler, rule: Rule, principal: Principal | None
    ) -> Handler:
        behavior: Any = (
            found.stream_stream or found.unary_stream or found.stream_unary or found.unary_unary
        )
        brief = method.startswith(_BRIEF)

        async def checked(request: Any, context: Context) -> Any:
            asked = _Asked(method, found.request_streaming, context)
            try:
                caller = await self._admit(rule, principal, context)
            except _Refusal as refusal:
                await self._turn_away(asked, refusal.why, refusal.principal)
            become(caller)
            if not found.request_streaming:
                request = await self._first(asked)
            if not brief:
                return await self._run(caller, behavior, request, asked)
            try:
                async with asyncio.timeout(self._idle_stream_s):
                    return await self._run(caller, behavior, request, asked)
            except TimeoutError:
                await self._refuse(asked, TOO_LONG, caller.name)

        # Towards gRPC requests are always streams: it would wait for a single one for ever, and
        # the caller is judged before anything of its request is read.
        make: Any = (
            grpc.stream_stream_rpc_method_handler
            if found.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        timed = self._timed(method, checked)
        handler: Handler = make(timed, found.request_deserializer, found.response_serializer)
        return handler

    def _timed(self, method: str, behavior: Any) -> Any:
        name = method.removeprefix("/")

        async def timed(request: Any, context: Context) -> Any:
            began, fault = time.monotonic(), None
            try:
                return await behavior(request, context)
            except BaseException as raised:
                fault = raised
                raise
            finally:
                self.times.ended(name, context.code(), fault, time.monotonic() - began)

        return timed

    async def _first(self, asked: _Asked) -> Any:
        """The request of a method that has one."""
        try:
            async with asyncio.timeout(self._first_message_s):
                request: Any = await asked.context.read()
        except TimeoutError:
            await self._refuse(asked, NO_REQUEST)
        if request is grpc.aio.EOF:
            await self._refuse(asked, NO_REQUEST)
        return request

    async def _turn_away(
        self, asked: _Asked, why: tuple[Reason, str], principal: str = ""
    ) -> NoReturn:
        """End the RPC. A stream's first message is given a moment: were the stream ended while it
        is being written, gRPC would show its caller that failure and not this status.
        """
        if asked.streaming:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PART_S):
                    await asked.context.read()
        await self._refuse(asked, why, principal)

    async def _admit(self, rule: Rule, principal: Principal | None, context: Context) -> Principal:
        """Who it is, if that is enough for the rule; else the RPC ends here."""
        certified = self._by_certificate(context)
        if certified is not None and (principal is None or certified.node_id):
            principal = certified
        if principal is None:
            if rule.open:
                return NOBODY
            raise _Refusal(UNKNOWN)
        if not principal.live:
            raise _Refusal(ENDED, principal.name)
        if principal is not LOCAL and not rule.open and rule.right not in principal.rights:
            wanted = (rule.right.name or "").lower()
            text = f"{principal.name!r} has no right to this: it needs {wanted!r}"
            raise _Refusal((Reason.PERMISSION_DENIED, text), principal.name)
        return principal

    def _by_certificate(self, context: Context) -> Principal | None:
        if self._access is None:  # to ask gRPC costs more than the rest of this
            return None
        found: Any = context.auth_context()
        if not found or _PEM not in found:
            return None
        names = [name.decode("utf-8", "replace") for name in found.get(_NAMES, ())]
        return self._access.by_certificate(Proof(names, found[_PEM][0]))

    async def _run(self, caller: Principal, behavior: Any, request: Any, asked: _Asked) -> Any:
        """Let it run; the end of its credential ends it."""
        if caller is LOCAL or caller is NOBODY:
            return await self._call(caller, behavior, request, asked)
        task = asyncio.current_task()
        assert task is not None
        mine = self._open.setdefault(caller, {})
        mine[task] = None
        try:
            return await self._call(caller, behavior, request, asked)
        except asyncio.CancelledError:
            if caller.live:
                raise
            task.uncancel()
            await self._refuse(asked, ENDED, caller.name)
        finally:
            del mine[task]
            if not mine:
                self._open.pop(caller, None)

    async def _call(self, caller: Principal, behavior: Any, request: Any, asked: _Asked) -> Any:
        """The method itself; what it refuses by tenant is told as well."""
        context = asked.context
        try:
            if not _generates(behavior):
                return await behavior(request, context)
            async for answer in behavior(request, context):
                await context.write(answer)
        except grpc.aio.AbortError:
            code: Any = context.code()
            if code in _DENIED:
                self._tell(asked, _DENIED[code], context.details(), caller.name)
            raise
        return None

    def _end_all(self, principal: Principal) -> None:
        """Its credential has ended."""
        for task in self._open.get(principal, ()):
            task.cancel()

    def _refusing(self, method: str, why: tuple[Reason, str], found: Handler) -> Handler:
        """A handler that ends the RPC and does not wait for its request."""

        async def refuse(_requests: Any, context: Context) -> None:
            await self._turn_away(_Asked(method, found.request_streaming, context), why)

        handler: Handler = grpc.stream_stream_rpc_method_handler(self._timed(method, refuse))
        return handler

    async def _refuse(
        self, asked: _Asked, why: tuple[Reason, str], principal: str = ""
    ) -> NoReturn:
        reason, text = why
        self._tell(asked, reason.name, text, principal)
        await status.abort(asked.context, reason, text)

    def _tell(self, asked: _Asked, reason: str, text: str, principal: str) -> None:
        address = asked.context.peer()
        self.refusals.tell(
            Place.RPC, reason, text, method=asked.method, principal=principal, address=address
        )


def _bearer(metadata: Any) -> tuple[str, bool]:
    """The token of the RPC, and whether anything was given as one."""
    for key, value in metadata or ():
        if key == "authorization":
            text = value if isinstance(value, str) else ""
            scheme = text[: len(_SCHEME)].lower()
            return (text[len(_SCHEME) :].strip() if scheme == _SCHEME else ""), True
    return "", False
