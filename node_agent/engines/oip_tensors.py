"""How do tensors of several requests become one batch, and its answer theirs again?

All are raw and row-major, so to batch along the first dimension is to join bytes.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

from batchyard.v1 import inference_pb2
from node_agent.engines.faults import broken, invalid
from node_agent.engines.oip_messages import MESSAGES

Tensor = inference_pb2.Tensor

SIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
}
_LENGTH = struct.Struct("<I")


def check(tensors: Sequence[Tensor]) -> None:
    """Whether every tensor's data are as long as its shape says.

    Raises:
        ItemFailed: they are not.
    """
    if not tensors:
        raise invalid("tensors.tensors", "there is no tensor")
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise invalid("tensors.tensors", "name a tensor twice")
    for i, tensor in enumerate(tensors):
        place = f"tensors.tensors[{i}]"
        size = SIZES.get(tensor.datatype)
        count = math.prod(tensor.shape)
        if any(length < 0 for length in tensor.shape):
            raise invalid(f"{place}.shape", "has a length below 0")
        if tensor.datatype == "BYTES":
            if len(_elements(tensor.data)) != count:
                raise invalid(f"{place}.data", f"holds not the {count} elements of its shape")
        elif size is None:
            raise invalid(f"{place}.datatype", f"{tensor.datatype!r} is not a type of the protocol")
        elif len(tensor.data) != count * size:
            text = f"{len(tensor.data)} bytes, the shape needs {count * size}"
            raise invalid(f"{place}.data", text)


def check_inputs(tensors: Sequence[Tensor], wanted: Sequence[Any]) -> None:
    """Whether a model that wants these inputs (TensorMetadata) takes the tensors.

    Servers tell it themselves, but not in a stream of answers: there it is a fault like any other.

    Raises:
        ItemFailed: it does not.
    """
    known = {each.name: each for each in wanted}
    for i, tensor in enumerate(tensors):
        place, theirs = f"tensors.tensors[{i}]", known.get(tensor.name)
        if theirs is None:
            names = ", ".join(map(repr, known))
            raise invalid(f"{place}.name", f"there is no input {tensor.name!r}, but {names}")
        if tensor.datatype != theirs.datatype:
            text = f"input {tensor.name!r} is of {theirs.datatype}, not {tensor.datatype!r}"
            raise invalid(f"{place}.datatype", text)
        if not _fits(tensor.shape, theirs.shape):
            text = f"input {tensor.name!r} is of shape {list(theirs.shape)} (-1: any)"
            raise invalid(f"{place}.shape", text)


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    if not wanted:  # not told
        return True
    return len(shape) == len(wanted) and all(
        w in (-1, s) for s, w in zip(shape, wanted, strict=True)
    )


def batch_key(tensors: Sequence[Tensor]) -> tuple[Any, ...] | None:
    """Return what must be equal to share a batch; None: it has no first dimension to join by."""
    if any(not tensor.shape or not tensor.shape[0] for tensor in tensors):
        return None
    if len({tensor.shape[0] for tensor in tensors}) != 1:
        return None
    return tuple(sorted((t.name, t.datatype, tuple(t.shape[1:])) for t in tensors))


def rows(tensors: Sequence[Tensor]) -> int:
    """Return its inputs: the first dimension."""
    return max(1, tensors[0].shape[0]) if tensors and tensors[0].shape else 1


def add_inputs(request: Any, members: Sequence[Sequence[Tensor]]) -> None:
    """Put the tensors of all members, joined, into an InferRequest."""
    for tensor in members[0]:
        parts = [next(t for t in member if t.name == tensor.name) for member in members]
        shape = list(tensor.shape)
        if len(members) > 1:
            shape[0] = sum(part.shape[0] for part in parts)
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
        request.raw_input_contents.append(b"".join(part.data for part in parts))


def split(response: Any, counts: Sequence[int]) -> list[list[Tensor]]:
    """Return the tensors of each member of a batch, by how many rows each had.

    Raises:
        ItemFailed: the answer cannot be split so.
    """
    if len(response.raw_output_contents) != len(response.outputs):
        raise broken("the server answered without raw contents", "malformed")
    whole = list(zip(response.outputs, response.raw_output_contents, strict=True))
    for output, data in whole:
        _check_output(output, data)
    if len(counts) == 1:
        return [[_tensor(output, output.shape, data) for output, data in whole]]
    members: list[list[Tensor]] = [[] for _ in counts]
    for output, data in whole:
        if not output.shape or output.shape[0] != sum(counts):
            raise broken(f"tensor {output.name!r} of a batch has another length", "malformed")
        for member, count, part in zip(members, counts, _cut(output, data, counts), strict=True):
            member.append(_tensor(output, [count, *output.shape[1:]], part))
    return members


def text_tensor(name: str, text: str, shape: Sequence[int]) -> Tensor:
    """Return a tensor of one element of BYTES."""
    data = text.encode()
    return Tensor(name=name, datatype="BYTES", shape=shape, data=_LENGTH.pack(len(data)) + data)


def texts_of(tensor: Tensor) -> str:
    """Return the elements of a tensor of BYTES, joined."""
    return b"".join(_elements(tensor.data)).decode("utf-8", "replace")


def new_request() -> Any:
    """An empty InferRequest."""
    return MESSAGES["InferRequest"]()


def _tensor(output: Any, shape: Sequence[int], data: bytes) -> Tensor:
    return Tensor(name=output.name, datatype=output.datatype, shape=shape, data=data)


def _check_output(output: Any, data: bytes) -> None:
    """Raises ItemFailed: its data are not what its shape says."""
    count, size = math.prod(output.shape), SIZES.get(output.datatype)
    if output.datatype == "BYTES":
        fits = len(_elements(data)) == count
    else:
        fits = size is not None and len(data) == count * size
    if not fits or any(length < 0 for length in output.shape):
        text = f"tensor {output.name!r} of {output.datatype} does not hold what its shape says"
        raise broken(text, "malformed")


def _cut(output: Any, data: bytes, counts: Sequence[int]) -> list[bytes]:
    per_row = math.prod(output.shape[1:])
    if output.datatype != "BYTES":
        size = SIZES[output.datatype] * per_row
        ends = [0]
        for count in counts:
            ends.append(ends[-1] + count * size)
        return [data[start:end] for start, end in itertools.pairwise(ends)]
    elements, parts = iter(_elements(data)), []
    for count in counts:
        own = [next(elements) for _ in range(count * per_row)]
        parts.append(b"".join(_LENGTH.pack(len(element)) + element for element in own))
    return parts


def _elements(data: bytes) -> list[bytes]:
    """The elements of a tensor of BYTES, as far as they are whole."""
    elements, at = [], 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            return []
        elements.append(data[at : at + length])
        at += length
    return elements
