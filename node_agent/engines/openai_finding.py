"""What is this server, which models has it, and do they answer? Found out by asking it.

A model serves once it has answered a first request of one token; adapters follow their base.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from batchyard.v1 import types_pb2
from node_agent.engines.code_points import whole
from node_agent.engines.faults import DENIED
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_request import CHAT, COMPLETIONS, EMBEDDINGS
from node_agent.engines.openai_served import Served, ServedModel
from node_agent.engines.openai_traits import OTHER, Place, all_traits, below, pick
from node_agent.engines.told_values import MODELS_MAX, amount, is_name

_ASK_S = 5.0
_ADDRESS = "give the root of an OpenAI-compatible server as its address (url)"
ACTIVE, LOADING = types_pb2.MODEL_STATE_ACTIVE, types_pb2.MODEL_STATE_LOADING


class NotReady(Exception):
    """The server does not serve yet; the text says what it answered. `remedy`: what to do, where
    waiting would be in vain.
    """

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class KeyRefused(NotReady):
    """It is up and does not let us in."""

    def __init__(self, status: int) -> None:
        remedy = "set api_key_file to a file with its key"
        super().__init__(f"it answered {status}: {remedy}", remedy=remedy)


SILENT = (NotReady, aiohttp.ClientError, OSError, TimeoutError)  # no answer that can be used


class Finder:
    """Asks one server."""

    def __init__(self, session: aiohttp.ClientSession, options: OpenaiOptions) -> None:
        self._session = session
        self._options = options
        self._documents: dict[str, Any] = {}  # by path; None: not there
        self.left_out = 0  # models of its list that no node can have
        self.listed = "none at all"  # the first names of its list

    async def find(self, before: Served | None = None) -> Served:
        """Return what serves there, with its models, not warmed up.

        `before`: what served there, for the adapters that we had it load.

        Raises:
            NotReady: it does not answer as a server that is up.
        """
        listed = await self._list()
        served = Served(options=self._options, kind=await self._kind(listed))
        served.traits = all_traits()[served.kind]
        facts = served.traits.facts
        served.version = whole(str(await self._fact(facts.version) or ""))
        served.slots = amount(await self._fact(facts.slots))
        served.context_length = amount(await self._fact(facts.context_length))
        served.kv_capacity_tokens = amount(await self._fact(facts.kv_capacity_tokens))
        sees = await self._fact(facts.images)
        served.sees = sees if isinstance(sees, bool) else None
        served.priority_on = await self._fact(facts.priority_on) is True
        served.priority_low_first = await self._fact(facts.priority_low_first) is True
        served.added = dict(before.added) if before is not None else {}
        served.models = self._models(listed, served)
        return served

    async def find_model(self, served: Served, name: str) -> ServedModel:
        """Return one model of its list as it is described there, not warmed up.

        Raises:
            NotReady: the server does not list it.
        """
        found = self._models(await self._list(), served).get(name)
        if found is None:
            raise NotReady(f"it does not list {name!r}")
        return found

    async def warm_up(self, model: ServedModel) -> None:
        """Have `model` answer one token, as a chat, else as a plain text, else as a vector.

        Raises:
            NotReady: it does not, for now.
        """
        model.chats = await self._answers(CHAT, _first_body(CHAT, model))
        model.completes = model.chats or await self._answers(
            COMPLETIONS, _first_body(COMPLETIONS, model)
        )
        if not model.completes:
            model.embeds = await self._answers(EMBEDDINGS, _first_body(EMBEDDINGS, model))
            if not model.embeds:
                raise NotReady(f"model {model.engine_name!r} answers nothing that was tried")
        model.state = ACTIVE

    async def lets_in(self, model: ServedModel) -> bool:
        """Whether a first request for `model`, which has answered one, is not denied now."""
        path = CHAT if model.chats else COMPLETIONS if model.completes else EMBEDDINGS
        async with self._session.post(below(path), json=_first_body(path, model)) as response:
            return response.status not in DENIED

    async def settle_priority(self, served: Served, model: ServedModel) -> None:
        """Decide how priority is told, by a request where only that can show it."""
        chosen = self._options.priority
        if chosen != "auto":
            served.priority = chosen
        elif served.traits.priority == "high_first_if_on":
            if served.priority_on:
                served.priority = "low_first" if served.priority_low_first else "high_first"
        elif served.traits.priority == "low_first_if_taken" and model.completes:
            path = CHAT if model.chats else COMPLETIONS
            taken = await self._answers(path, {**_first_body(path, model), "priority": -1})
            served.priority = "low_first" if taken else "omit"

    async def _answers(self, path: str, body: dict[str, Any]) -> bool:
        """Whether it can do this at all; a server that is full or loads is asked again later."""
        async with self._session.post(below(path), json=body) as response:
            text = await response.text(errors="replace")
        if response.status == 200:
            return True
        if response.status in (400, 404, 405, 415, 422, 500, 501):
            if response.status == 500 and path != CHAT:
                raise NotReady(f"it answered 500 to a first request: {text[:200]}")
            return False
        if response.status in DENIED:
            raise KeyRefused(response.status)
        raise NotReady(f"it answered {response.status} to a first request: {text[:200]}")

    async def _list(self) -> list[dict[str, Any]]:
        document, status = await self._ask("/v1/models")
        if status in DENIED:
            raise KeyRefused(status)
        rows = document.get("data") if isinstance(document, dict) else None
        if status != 200 or not isinstance(rows, list):
            remedy = "" if status >= 500 else _ADDRESS
            text = f"it answered {status} to /v1/models, no list of models"
            raise NotReady(text, remedy=remedy)
        named = {row["id"]: row for row in rows if isinstance(row, dict) and is_name(row.get("id"))}
        kept = list(named.values())[:MODELS_MAX]
        self.left_out = len(rows) - len(kept)
        self.listed = ", ".join([repr(name) for name in named][:10]) or self.listed
        return kept

    async def _kind(self, listed: list[dict[str, Any]]) -> str:
        if self._options.engine != "auto":
            return self._options.engine
        owners = {row.get("owned_by") for row in listed}
        for kind, traits in all_traits().items():
            if owners & set(traits.owned_by):
                return kind
        for kind, traits in all_traits().items():
            if traits.told_by is not None and await self._fact(traits.told_by) is not None:
                return kind
        return OTHER

    async def _fact(self, place: Place | None) -> Any:
        if place is None:
            return None
        if place.path not in self._documents:
            document, status = await self._ask(place.path)
            self._documents[place.path] = document if status == 200 else None
        return pick(self._documents[place.path], place.key)

    async def _ask(self, path: str) -> tuple[Any, int]:
        try:
            async with asyncio.timeout(_ASK_S), self._session.get(below(path)) as response:
                try:
                    return await response.json(content_type=None), response.status
                except ValueError:
                    return None, response.status
        except TimeoutError as error:
            raise NotReady(f"it did not answer {path} within {_ASK_S:g} s") from error

    def _models(self, listed: list[dict[str, Any]], served: Served) -> dict[str, ServedModel]:
        chosen = self._options.models and {**self._options.models, **served.added}
        public = {theirs: ours for ours, theirs in chosen.items()}
        rows = [row for row in listed if not public or row["id"] in public]
        names = {row["id"]: public.get(row["id"], row["id"]) for row in rows}
        told = {row["id"]: amount(row.get("max_model_len")) for row in listed}
        return {names[row["id"]]: _model(row, names, told, served) for row in rows}


def _first_body(path: str, model: ServedModel) -> dict[str, Any]:
    """The least that can be asked of it: one token, or one vector."""
    name, words = model.engine_name, "Hello"
    if path == EMBEDDINGS:
        return {"model": name, "input": words}
    if path == COMPLETIONS:
        return {"model": name, "prompt": words, "max_tokens": 1}
    turn = {"role": "user", "content": words}
    return {"model": name, "messages": [turn], "max_tokens": 1}


def _model(
    row: dict[str, Any], names: dict[str, str], contexts: dict[str, int | None], served: Served
) -> ServedModel:
    parent = row.get("parent")
    base = names.get(parent, parent) if is_name(parent) and parent != row["id"] else ""
    context = served.options.context_length or contexts[row["id"]]
    if not context and base:  # vLLM tells none of an adapter, which has its base's
        context = contexts.get(str(parent))
    return ServedModel(
        name=names[row["id"]],
        engine_name=row["id"],
        base=base,
        context_length=context or served.context_length,
    )


def words(error: BaseException) -> str:
    """What one of SILENT says, in words for people."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.strerror or error.os_error)
    if isinstance(error, aiohttp.ClientResponseError):
        return "it does not speak HTTP/1; at a gRPC port: --engine oip, with its `address`"
    return str(error) or "it does not answer in time"


def remedy_of(error: BaseException) -> str:
    """What to do about one of SILENT; empty: wait, for all that is known."""
    if isinstance(error, NotReady):
        return error.remedy
    if isinstance(error, aiohttp.ClientConnectorError):
        return "start it, or correct its address (url)"
    return _ADDRESS if isinstance(error, aiohttp.ServerDisconnectedError) else ""
