"""What can be configured about an engine that is an OpenAI-compatible server?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service_kit.units import DurationS, PositiveDurationS

EngineKind = Literal["auto", "vllm", "sglang", "llamacpp", "tgi", "ollama", "lmstudio", "other"]


def _base_url(value: object) -> object:
    """The server's root: with or without /v1 at its end means the same."""
    if not isinstance(value, str) or not value:
        return value
    url = value.rstrip("/").removesuffix("/v1").rstrip("/")
    if "//" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError('is not the address of a server: write "http://127.0.0.1:8000"')
    if parts.username or parts.password:
        raise ValueError("has a password in it: set api_key_file")
    return url


class OpenaiOptions(BaseModel):
    """Options of kind `openai`. One of `url` and `command` is needed; nothing else is."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    url: Annotated[str, BeforeValidator(_base_url)] = ""
    """Root of a server that runs, as "http://127.0.0.1:8000"; with or without /v1."""
    command: tuple[str, ...] = ()
    """Starts the server as a child, watched and started again; "{port}" in it becomes a free port
    of the loopback."""
    working_directory: Path | None = None
    """Of the child; absent: the agent's own."""
    engine: EngineKind = "auto"
    """Which server it is, for what differs between them; "auto": found out."""
    api_key_file: Path | None = None
    """Holds the key that the server wants, on its first line; absent: none."""
    models: dict[str, str] = {}
    """Public name: the server's name. Empty: all that it lists, by its own names."""
    task_types: tuple[str, ...] = ()
    """Served here; empty: all."""
    gpus: tuple[int, ...] = ()
    """Indexes of the GPUs that the server owns; empty: not known."""

    slots: int = Field(default=0, ge=0, le=65536)
    """Requests that it runs at once. 0: by its own word, else a guess that follows what it shows
    (fewer when it queues our requests, more while it does not)."""
    max_slots: int = Field(default=256, ge=1, le=65536)
    """A guess never grows beyond."""
    look_ahead: int = Field(default=0, ge=0, le=65536)
    """Requests held beyond the slots; more are refused with ENGINE_BUSY."""
    context_length: int = Field(default=0, ge=0, le=100_000_000)
    """Tokens of prompt and output. 0: by its own word, else unknown."""
    priority: Literal["auto", "omit", "low_first", "high_first"] = "auto"
    """How it orders requests by `priority`; "auto": found out, and omitted where it would be
    ignored or refused."""
    apply_chat_template: bool = True
    """Send plain text prompts as a user's turn; off where the model has no chat template."""
    max_tokens: int = Field(default=0, ge=0)
    """Output limit of requests that name none; 0: the server's own (plain completions: 512)."""
    image_hosts: tuple[str, ...] = ()
    """Hosts from which the server may fetch images that a request names by https; inline images
    need none."""

    start_timeout: PositiveDurationS = 1800.0
    """To be there, load and answer a first request."""
    poll_interval: PositiveDurationS = 0.5
    """Between two looks at its health and metrics."""
    models_interval: PositiveDurationS = 10.0
    """Between two looks at its list of models and adapters."""
    first_token_timeout: DurationS = 120.0
    """From the call to the first event; 0: no limit. An item that hits it fails with
    ENGINE_STALLED, and the engine takes work again only after it answered a trial."""
    idle_timeout: DurationS = 60.0
    """Between two events of a stream; 0: no limit."""
    stall_timeout: PositiveDurationS = 10.0
    """Silence of its health check that makes it STALLED."""
    trial_interval: PositiveDurationS = 5.0
    """Between two trials of an engine that hung."""
    stall_kill: PositiveDurationS = 60.0
    """A child that hangs for so long is killed and started again."""
    restart_delay: DurationS = 1.0
    """Before a child is started again; doubles with each failure in a row."""
    restart_delay_max: DurationS = 60.0

    @model_validator(mode="after")
    def _fits_together(self) -> OpenaiOptions:
        if bool(self.url) == bool(self.command):
            raise ValueError("one of url and command is needed, and not both")
        if self.command and not any("{port}" in word for word in self.command):
            raise ValueError('command: "{port}" must stand where the server is told its port')
        twice = sorted({n for n in self.models.values() if list(self.models.values()).count(n) > 1})
        if twice:
            raise ValueError(f"models: {twice[0]!r} of the server has two public names")
        if self.slots > self.max_slots:
            raise ValueError(f"slots: {self.slots} is more than max_slots ({self.max_slots})")
        return self

    def read_key(self) -> str:
        """Return the key; empty: there is none.

        Raises:
            ValueError: the file cannot be read; the text says what to do.
        """
        if self.api_key_file is None:
            return ""
        try:
            return self.api_key_file.read_text(encoding="utf-8").splitlines()[0].strip()
        except (OSError, IndexError) as error:
            raise ValueError(f"api_key_file: cannot be read: {error}") from error
