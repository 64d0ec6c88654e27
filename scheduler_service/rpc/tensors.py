"""Does a tensor hold what its shape and datatype say?"""

from __future__ import annotations

import math
from typing import Final

from batchyard.v1 import inference_pb2

_BYTES: Final = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2,
    "INT32": 4, "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip
MAX_SIDES: Final = 64  # none knows more; the product of very many would take minutes
_SHOWN: Final = 64  # characters of a caller's own words in a message


def fault(tensor: inference_pb2.Tensor) -> tuple[str, str] | None:
    """The field that is wrong and why; None: nothing is."""
    if len(tensor.shape) > MAX_SIDES:
        return "shape", f"{len(tensor.shape)} sides; at most {MAX_SIDES}"
    shape = tensor.shape[:]
    if any(side < 0 for side in shape):
        return "shape", "sides are at least 0"
    width = _BYTES.get(tensor.datatype)
    if width is None and tensor.datatype != "BYTES":
        return "datatype", f"datatype {tensor.datatype[:_SHOWN]!r} is not one of {_known()}"
    elements = math.prod(shape)
    if width is None:
        found = _elements(tensor.data)
        if found == elements:
            return None
        what = "cut off" if found < 0 else f"{found} elements"
        return "data", f"{_shown(shape)} needs another number of BYTES elements; these are {what}"
    if elements * width != len(tensor.data):
        return "data", (
            f"{_shown(shape)} of {tensor.datatype} does not take up the {len(tensor.data)} bytes "
            "that are here"
        )
    return None


def _elements(data: bytes) -> int:
    """How many elements of a length and so many bytes these are; -1: the last is cut off."""
    position = count = 0
    while position < len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "little")
        count += 1
    return count if position == len(data) else -1


def _shown(shape: list[int]) -> str:
    text = str(shape)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...]"


def _known() -> str:
    return ", ".join([*_BYTES, "BYTES"])
