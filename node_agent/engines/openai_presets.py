"""How is a known server started as a child? Kinds `vllm` and `sglang` are `openai` with a command.

engines:
  - {kind: vllm, model: Qwen/Qwen3-8B, args: [--max-num-seqs, "64"]}    a child of the agent
  - {kind: vllm, url: "http://127.0.0.1:8000"}                         one that runs
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

MODULES = {
    "vllm": ("vllm.entrypoints.openai.api_server", "--model"),
    "sglang": ("sglang.launch_server", "--model-path"),
}


class LaunchOptions(BaseModel):
    """Options of kinds `vllm` and `sglang`, beside all of kind `openai`."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    model: Annotated[str, Field(max_length=1024)] = ""
    """What to serve as a child: a name or folder, as the server's own flag takes it. Empty: attach
    to the `url`."""
    args: tuple[str, ...] = ()
    """More of the server's own flags."""
    python: str = ""
    """The interpreter that has the server; empty: the agent's own."""

    @model_validator(mode="after")
    def _one_way(self) -> LaunchOptions:
        attaches = bool((self.model_extra or {}).get("url"))
        if attaches == bool(self.model):
            raise ValueError("one of model (to start it) and url (to attach to it) is needed")
        if attaches and (self.args or self.python):
            raise ValueError("args and python are for a server that is started here")
        return self


def openai_options(kind: str, launch: LaunchOptions) -> dict[str, Any]:
    """Return the options of kind `openai` that do what `launch` says."""
    options = {**(launch.model_extra or {}), "engine": kind}
    if launch.model:
        module, flag = MODULES[kind]
        python = launch.python or sys.executable
        own = [flag, launch.model, "--host", "127.0.0.1", "--port", "{port}"]
        options["command"] = [python, "-m", module, *own, *launch.args]
    return options
