"""Which items does a job's input have, and may they be stored? Checked as calls are, one by one.

Each item is stored as it will run: with the job's defaults and tenant, and the model and priority
that were resolved for it, so that it stays the same job when the configuration changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from batchyard.v1 import inference_pb2, scheduler_service_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import NEVER
from scheduler_service.jobs import json_lines
from scheduler_service.jobs.inputs import digest
from scheduler_service.jobs.kept import NewItem
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.permits import permit
from scheduler_service.security.principals import Principal

CUSTOM_ID_MAX: Final = 256
_AT_ONCE: Final = 64  # items between which others have their turn
_SHARED: Final = (str, int, float, bytes, Message)
_NO_DEFAULT: Final = frozenset({"request_id", "tenant", "trace"})
_InferenceRequest: Final = inference_pb2.InferenceRequest
_INPUTS: Final = frozenset(
    field.name for field in _InferenceRequest.DESCRIPTOR.oneofs_by_name["input"].fields
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemIntake:
    """Takes in the items of one job."""

    converter: Converter
    principal: Principal
    tenant: str
    defaults: inference_pb2.InferenceRequest
    room: int  # items that this input may have
    limit: int  # of the whole job
    start: int = 0  # items before this input

    async def read(self, given: scheduler_service_pb2.JobInput) -> list[NewItem]:
        """All items of the input; other work of the loop goes on between them.

        Raises:
            Refused: at the first item that is wrong, naming it.
        """
        taken: list[NewItem] = []
        for where, item in _items(given, self.start):
            if len(taken) == self.room:
                raise Refused(
                    f"a job may have {self.limit} items at most: cut it into several",
                    field=where, reason=Reason.REQUEST_TOO_LARGE,
                    metadata={"limitItems": str(self.limit)},
                )  # fmt: skip
            try:
                taken.append(self._take(item))
            except Refused as refused:
                refused.within(where)
                raise
            if len(taken) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return taken

    def _take(self, item: scheduler_service_pb2.JobItem) -> NewItem:
        if len(item.custom_id) > CUSTOM_ID_MAX:
            raise Refused(
                f"custom_id may have {CUSTOM_ID_MAX} characters at most", field="custom_id"
            )
        try:
            request = self._check(item.request)
        except Refused as refused:
            refused.within("request")
            raise
        return NewItem(
            item.custom_id, request.model, request.priority, request.SerializeToString(),
            digest(item.SerializeToString(deterministic=True)),
        )  # fmt: skip

    def _check(self, given: inference_pb2.InferenceRequest) -> inference_pb2.InferenceRequest:
        request = _InferenceRequest()
        request.CopyFrom(given)
        request.ClearField("request_id")  # the server's
        fill_in(request, self.defaults)
        request.tenant = self.tenant
        parsed = self.converter.convert(
            request.SerializeToString(), rid=0, now=0, rpc_deadline=NEVER, stream=False
        )
        permit(self.principal, parsed.request, parsed.given)
        request.model, request.priority = parsed.request.model, parsed.request.priority
        return request


def _items(
    given: scheduler_service_pb2.JobInput, start: int
) -> Iterator[tuple[str, scheduler_service_pb2.JobItem]]:
    """Each item, and how its place is called: counted over all messages of the input.

    Empty lines do not count, for a later message knows only how many items were before it.
    """
    kinds = [name for name in ("items", "json_lines") if getattr(given, name)]
    if given.HasField("ref"):
        raise Refused(
            "input from elsewhere is not built in this version; send items or json_lines",
            field="input.ref", reason=Reason.UNSUPPORTED_FEATURE,
            metadata={"feature": "payload_ref"},
        )  # fmt: skip
    if len(kinds) > 1:
        raise Refused("give items or json_lines, not both", field="input")
    for index, item in enumerate(given.items):
        yield f"input.items[{start + index}]", item
    lines = (line for line in given.json_lines.split(b"\n") if line.strip())
    for number, line in enumerate(lines, start + 1):
        where = f"input.json_lines[{number}]"
        yield where, _line(line, where)


def _line(line: bytes, where: str) -> scheduler_service_pb2.JobItem:
    try:
        return json_lines.read(line)
    except Refused as refused:
        refused.within(where)
        raise


def fill_in(
    request: inference_pb2.InferenceRequest, defaults: inference_pb2.InferenceRequest
) -> None:
    """Scalars and messages that the request leaves unset; a message as a whole."""
    for field, value in defaults.ListFields():
        name = field.name
        if field.message_type is not None:
            if not request.HasField(name):
                getattr(request, name).CopyFrom(value)
        elif not getattr(request, name):
            setattr(request, name, value)


def check_defaults(defaults: inference_pb2.InferenceRequest) -> None:
    """What a job's defaults may have.

    Raises:
        Refused: naming the field.
    """
    for field, value in defaults.ListFields():
        name = field.name
        if name in _NO_DEFAULT or name in _INPUTS or not isinstance(value, _SHARED):
            raise Refused(
                f"defaults may not have {name}: only scalars and messages that items can share",
                field=f"defaults.{name}",
            )
