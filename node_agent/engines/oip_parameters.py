"""How do the parameters of a text go with a call? By name, as the protocol's own parameters.

The protocol knows none of text, but carries any; a model's code (in Triton: `request.parameters()`)
reads those that it knows.
"""

from __future__ import annotations

import json
from typing import Any

from batchyard.v1 import inference_pb2
from node_agent.engines.faults import invalid, unsupported

Parameters = tuple[tuple[str, bool | int | float | str], ...]

_KEPT = ("priority", "timeout")  # set from the request itself
_ONE = "the protocol's parameters are single texts and numbers"


def set_parameter(parameter: Any, value: object) -> bool:
    """Set an InferParameter; tell whether it can hold such a value."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    elif isinstance(value, str):
        parameter.string_param = value
    else:
        return False
    return True


def parameters_of(params: inference_pb2.GenerationParams) -> Parameters:
    """Return what is set of these, and of the options for the engine, by name.

    Raises:
        ItemFailed: something is set that the protocol cannot carry.
    """
    found: dict[str, bool | int | float | str] = {}
    for field, value in params.ListFields():
        name = field.name
        if name == "engine_options_json":
            found.update(_options(value))
        elif name == "n" and value == 1:
            continue
        elif name == "n" or not isinstance(value, bool | int | float | str):
            raise unsupported(f"params.{name}", name, f"{name} cannot be told to it: {_ONE}")
        else:
            found[name] = value
    return tuple(sorted(found.items()))


def _options(text: str) -> dict[str, Any]:
    field = "params.engine_options_json"
    try:
        options = json.loads(text)
    except ValueError as error:
        raise invalid(field, f"is no JSON: {error}") from error
    if not isinstance(options, dict):
        raise invalid(field, "is no JSON object")
    for key, value in options.items():
        if key in _KEPT or key.startswith("triton_"):
            raise invalid(field, f"{key!r} is set by the engine itself")
        if not isinstance(value, bool | int | float | str):
            raise invalid(field, f"{key!r}: {_ONE}")
    return options
