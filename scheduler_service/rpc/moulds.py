"""Is a request like the one before it but for its id and its prompt? Then only these are read.

A client's library writes one request as the next: the id, fields, the prompt, fields. What is
around id and prompt is the mould of their form. A request that was cast in it has that form, for
its other bytes are the same, in fields that begin and end where they did. All else is parsed.

    0A 05 r-123 | model, priority, timeout, 82 01 | 07 0A 05 Hello | params
     id         | before                          | prompt         | after
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchyard.v1 import inference_pb2
from service_kit.wire_write import field, tag

_Request: Final = inference_pb2.InferenceRequest
_ID: Final = tag(_Request.REQUEST_ID_FIELD_NUMBER)
_TEXT: Final = tag(_Request.TEXT_FIELD_NUMBER)
_PROMPT: Final = tag(inference_pb2.TextInput.PROMPT_FIELD_NUMBER)
_ID_BYTE: Final = _ID[0]
_PROMPT_BYTE: Final = _PROMPT[0]
ID_BYTES_MAX: Final = 64
PROMPT_BYTES_MAX: Final = 16_000  # its length, and that of what holds it, have two bytes at most


@dataclass(frozen=True, slots=True)
class Mould:
    """The bytes of a form's requests around their own."""

    before: bytes  # of the prompt; without the id
    after: bytes

    def read(self, data: bytes) -> tuple[str, str] | None:
        """The id, if any, and the prompt. None: parse it, to know what it is and what is wrong."""
        try:
            return self._read(data)
        except (IndexError, UnicodeDecodeError):
            return None

    def _read(self, data: bytes) -> tuple[str, str] | None:
        at, request_id = 0, ""
        if data[0] == _ID_BYTE:
            at = 2 + data[1]
            if at > 2 + ID_BYTES_MAX:
                return None
            request_id = data[2:at].decode()
        if not data.startswith(self.before, at):
            return None
        at += len(self.before)
        size = data[at]
        at += 1
        if size > 0x7F:
            size = size & 0x7F | data[at] << 7
            at += 1
        end = at + size
        if end + len(self.after) != len(data) or not data.endswith(self.after):
            return None
        if size > PROMPT_BYTES_MAX or data[at] != _PROMPT_BYTE:
            return None
        size = data[at + 1]
        at += 2
        if size > 0x7F:
            size = size & 0x7F | data[at] << 7
            at += 1
        return (request_id, data[at:end].decode()) if at + size == end else None


def mould_of(data: bytes, form: bytes) -> Mould | None:
    """Of a valid request and its bytes without what is its own; None: it has none.

    It has one if its own fields are an id, if any, at its front, and a prompt.
    """
    request, before = _Request.FromString(data), _Request.FromString(form)
    for descriptor, _ in before.ListFields():
        if descriptor.number > _Request.TEXT_FIELD_NUMBER:
            before.ClearField(descriptor.name)
    first = before.SerializeToString()
    after = form[len(first) :]
    own_id = field(_ID, request.request_id.encode()) if request.request_id else b""
    prompt = field(_PROMPT, request.text.prompt.encode())
    if data != own_id + first + field(_TEXT, prompt) + after:
        return None
    return Mould(first + _TEXT, after)
