"""What serves at the other end, as far as it was found out?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from batchyard.v1 import types_pb2
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_traits import OTHER, Traits, all_traits

PriorityMode = Literal["omit", "low_first", "high_first"]


@dataclass(slots=True, kw_only=True)
class ServedModel:
    """One model or adapter of the server."""

    name: str  # public
    engine_name: str
    base: str = ""  # public name of an adapter's base
    context_length: int | None = None
    state: types_pb2.ModelState = types_pb2.MODEL_STATE_LOADING
    chats: bool = True  # it has a chat template
    completes: bool = True
    embeds: bool = False  # it is known to embed
    failures: int = 0  # first requests in a row that it did not answer
    retry_at: float = 0.0  # loop time; when it is asked again after them

    def renew(self, listed: ServedModel) -> bool:
        """Take over what the server says of it now; tell whether that differs."""
        before = (self.engine_name, self.base, self.context_length)
        now = (listed.engine_name, listed.base, listed.context_length)
        self.engine_name, self.base, self.context_length = now
        return now != before


@dataclass(slots=True, kw_only=True)
class Served:
    """One server. Unknown is None."""

    options: OpenaiOptions
    kind: str = OTHER
    traits: Traits = field(default_factory=lambda: all_traits()[OTHER])
    version: str = ""
    slots: int | None = None  # by its own word
    context_length: int | None = None
    kv_capacity_tokens: int | None = None
    sees: bool | None = None  # reads images
    priority_on: bool | None = None
    priority_low_first: bool = False
    priority: PriorityMode = "omit"
    models: dict[str, ServedModel] = field(default_factory=dict)  # by public name
    asked: dict[str, ServedModel] = field(default_factory=dict)  # to be loaded, not there yet
    added: dict[str, str] = field(default_factory=dict)  # public name: theirs, loaded by us

    @property
    def told(self) -> tuple[object, ...]:
        """What it said of itself as a whole, models aside: if that differs, it is another one."""
        return (
            self.kind,
            self.version,
            self.slots,
            self.context_length,
            self.kv_capacity_tokens,
            self.sees,
            self.priority_on,
            self.priority_low_first,
        )

    @property
    def takes_images(self) -> bool:
        """Whether image parts may be sent: by its own word, else by what is known of its kind."""
        return self.sees if self.sees is not None else "images" in self.traits.takes
