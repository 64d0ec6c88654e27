"""Is this text of a caller's the JSON that it should be? Faults name the field."""

from __future__ import annotations

import json
from typing import Any

from node_agent.engines.faults import invalid


def json_object(text: str | bytes, field: str) -> dict[str, Any]:
    """Return the object in `text`.

    Raises:
        ItemFailed: it is not JSON, or not an object.
    """
    value = _parsed(text, field)
    if not isinstance(value, dict):
        raise invalid(field, "must be a JSON object")
    return value


def json_array(text: str, field: str) -> list[Any]:
    """Return the array in `text`.

    Raises:
        ItemFailed: it is not JSON, or not an array.
    """
    value = _parsed(text, field)
    if not isinstance(value, list):
        raise invalid(field, "must be a JSON array")
    return value


def _parsed(text: str | bytes, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"not JSON: {error}") from error
