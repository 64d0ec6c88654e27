"""How is a server asked to load a model of its repository, and what does its refusal mean?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from batchyard.v1 import types_pb2
from node_agent.engines.interface import EngineError, ModelRefused
from node_agent.engines.oip_faults import from_status
from node_agent.engines.oip_messages import MESSAGES
from node_agent.engines.oip_parameters import set_parameter


def load_request(model: str, options: Mapping[str, Any]) -> Any:
    """Return the message that has `model` loaded; `options`: parameters of Triton's own.

    Raises:
        ModelRefused: one of them is of a kind that no parameter has.
    """
    request = MESSAGES["RepositoryChange"](model_name=model)
    for key, value in options.items():
        if isinstance(value, float) or not set_parameter(request.parameters[key], value):
            text = f"option {key!r}: a parameter is a text, a whole number, true or false"
            reason = types_pb2.ERROR_REASON_INVALID_ARGUMENT
            raise ModelRefused(EngineError(reason=reason, message=text, field="options_json"))
    return request


def repository_fault(error: grpc.aio.AioRpcError, verb: str) -> EngineError:
    """Return why the server does not `verb` ("load", "unload") a model, and what to do."""
    details = error.details() or ""
    if is_closed(error) or "explicit model load" in details:
        text = (
            f"the server lets nobody {verb} models; Triton does with --model-control-mode=explicit"
        )
        reason = types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
        return EngineError(reason=reason, message=f"{text} ({details})")
    return from_status(error.code().name, details)


def is_closed(error: grpc.aio.AioRpcError) -> bool:
    """Whether the server does not have this method, or keeps it to itself."""
    restricted = "restricted" in (error.details() or "")
    return error.code() is grpc.StatusCode.UNIMPLEMENTED or restricted
