"""What is known of each kind of OpenAI-compatible server? The table is data: openai_traits.yaml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

TABLE = Path(__file__).with_name("openai_traits.yaml")
OTHER = "other"

Priority = Literal["none", "low_first_if_taken", "high_first_if_on"]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_Row):
    """A value in a JSON document: `key` is dotted."""

    path: str
    key: str


class Facts(_Row):
    """What the server says of itself, once."""

    version: Place | None = None
    slots: Place | None = None
    context_length: Place | None = None
    kv_capacity_tokens: Place | None = None
    images: Place | None = None
    priority_on: Place | None = None
    priority_low_first: Place | None = None


class Metrics(_Row):
    """Names of its metrics, newest first; none: it does not tell."""

    path: str = ""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_utilization: tuple[str, ...] = ()
    prompt_tokens_total: tuple[str, ...] = ()
    output_tokens_total: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    prefix_queries_total: tuple[str, ...] = ()
    prefix_hits_total: tuple[str, ...] = ()
    prefix_hit_ratio: tuple[str, ...] = ()


class LabelProduct(_Row):
    """A number that is told as labels of a metric: their product."""

    metric: str
    labels: tuple[str, ...]


class Loading(_Row):
    """The call that loads or unloads an adapter; `name` is the key of its name in the body."""

    path: str
    name: str
    needs: str  # how the server must be started to have it


class Traits(_Row):
    """One kind of server."""

    title: str
    owned_by: tuple[str, ...] = ()  # in its list of models
    told_by: Place | None = None  # it is this kind if the value is there
    health: str
    facts: Facts = Facts()
    assumed_slots: int = Field(ge=1)
    loads_on_demand: bool = False  # lists models that are not loaded
    priority: Priority
    params: dict[str, str] = {}  # ours beyond OpenAI's own: theirs
    constraints: dict[str, str] = {}  # kind of guided decoding: dotted key
    stream_options: dict[str, Any] = {}
    stream_body: dict[str, Any] = {}  # added to each streamed call
    continue_chat: dict[str, Any] | None = None  # added to go on from an open turn; None: it cannot
    takes: tuple[str, ...]
    metrics: Metrics = Metrics()
    kv_capacity: LabelProduct | None = None
    slots_path: str = ""  # llama.cpp's list of slots
    load: Loading | None = None
    unload: Loading | None = None

    @property
    def tells_progress(self) -> bool:
        """Whether it tells, as it goes, how much of a prompt it has taken in."""
        return bool(self.stream_body.get("return_progress"))


@cache
def all_traits() -> dict[str, Traits]:
    """The table, by kind; `other` is what holds for any server."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {kind: Traits.model_validate(row) for kind, row in table.items()}


def below(path: str) -> str:
    """`path` as it is asked for at a server whose root may be a path itself."""
    return path.lstrip("/")


def pick(document: object, key: str) -> Any:
    """Return the value at the dotted `key`; None: it is not there."""
    for part in key.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document
