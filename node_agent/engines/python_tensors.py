"""How do tensors of the protocol become numpy arrays, and back? Without numpy there are none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from batchyard.v1 import inference_pb2

_TYPES = {  # Open Inference Protocol: numpy
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}


def read_tensors(tensors: Sequence[inference_pb2.Tensor]) -> dict[str, Any]:
    """Return the arrays, by name.

    Raises:
        ValueError: a type has no array, or the data do not fit the shape.
    """
    if not tensors:
        return {}
    numpy = importlib.import_module("numpy")
    arrays = {}
    for tensor in tensors:
        form = _TYPES.get(tensor.datatype)
        if form is None:
            raise ValueError(f"tensor {tensor.name!r}: {tensor.datatype} has no array type here")
        arrays[tensor.name] = numpy.frombuffer(tensor.data, form).reshape(tuple(tensor.shape))
    return arrays


def write_tensors(arrays: Mapping[str, Any]) -> list[inference_pb2.Tensor]:
    """Return the tensors of arrays by name.

    Raises:
        TypeError: an array has a type that the protocol has not.
    """
    numpy = importlib.import_module("numpy")
    names = {numpy.dtype(form): name for name, form in _TYPES.items()}
    tensors = []
    for name, array in arrays.items():
        datatype = names.get(array.dtype.newbyteorder("<"))
        if datatype is None:
            raise TypeError(f"tensor {name!r}: arrays of {array.dtype} cannot be sent")
        data = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        tensors.append(
            inference_pb2.Tensor(name=name, datatype=datatype, shape=array.shape, data=data)
        )
    return tensors
