"""How is a server told to load or unload an adapter (LoRA), where it can at all?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from batchyard.v1 import types_pb2
from node_agent.engines.faults import from_response, unavailable, unsupported
from node_agent.engines.interface import EngineError, ModelRefused
from node_agent.engines.openai_served import Served
from node_agent.engines.openai_traits import Loading, below


def why_not(served: Served, loading: Loading | None, verb: str, model: str) -> EngineError | None:
    """Why this server cannot do that; None: it may."""
    title, known = served.traits.title, served.models.get(model)
    if loading is None:
        own = "; it loads by itself what is asked for" if served.traits.loads_on_demand else ""
        return unsupported("", f"{verb}_model", f"{title} cannot {verb} models{own}").error
    if known is not None and not known.base:
        text = f"{title} can {verb} adapters, and {model!r} is none: it stays as long as its server"
        return unsupported("", f"{verb}_model", text).error
    return None


async def change(
    session: aiohttp.ClientSession, loading: Loading, name: str, options: Mapping[str, Any]
) -> None:
    """Have the server do it. `options` go into the call as they are (`lora_path`).

    Raises:
        ModelRefused: it did not.
    """
    body = {**options, loading.name: name}
    try:
        async with session.post(below(loading.path), json=body) as response:
            text = await response.text(errors="replace")
    except (aiohttp.ClientError, OSError) as error:
        raise ModelRefused(unavailable(f"the server did not answer: {error!r}")) from error
    if response.status == 200:
        return
    if response.status in (404, 405):
        why = f"the server has no {loading.path}: {loading.needs}"
        raise ModelRefused(unsupported("", "load_model", why).error)
    fault = from_response(response.status, text, "options_json", engine="the server")
    if fault.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT:
        fault.field = "options_json"
    raise ModelRefused(fault)
