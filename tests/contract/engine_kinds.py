"""Which engines keep the contract, how is each built, and what can it not be asked for, and why?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SLOTS = 4


@dataclass(frozen=True)
class Kind:
    """How to build an engine for these tests, and what keeps it busy for seconds."""

    name: str  # of the engine
    options: dict[str, Any]
    long_prompt: str  # before its first token
    long_output: dict[str, Any]  # prompt, parameters
    server: str = ""  # the fixture that says where a server of it runs; empty: it needs none
    params: dict[str, Any] = field(default_factory=dict)  # of items, unless they say otherwise
    hangs: dict[str, Any] = field(default_factory=dict)  # options: how soon it finds a hang
    faulty: dict[str, Any] = field(default_factory=dict)  # what its server refuses
    loads: Mapping[str, Any] | None = None  # options of a load of "later"; None: it refuses
    lacks: Mapping[str, str] = field(default_factory=dict)  # a feature, and why it has it not


SIMULATED = {
    "slots": SLOTS,
    "latency": "5ms",
    "latency_per_item": "1ms",
    "latency_per_token": "1ms",
    "kv_capacity_tokens": 100000,
    "warm_up": "50ms",
    "models": [{"name": "m", "context_length": 30000}],
}
LLAMACPP = {
    "model": "m",
    "slots": SLOTS,
    "threads": 1,
    "context_per_slot": 30000,
    "batch_tokens": 256,
    "poll_interval": "50ms",
}
OPENAI = {"poll_interval": "50ms"}
OPENAI_HANGS = {
    "first_token_timeout": "2s",
    "idle_timeout": "2s",
    "stall_timeout": "1s",
    "trial_interval": "100ms",
}
LONG_PROMPT, LONG_OUTPUT = "long ago " * 3000, {"max_tokens": 20000}

KINDS = {
    "static": Kind(
        "simulated", {**SIMULATED, "mode": "static"}, "[[sleep=60s]]", {"max_tokens": 5000},
        loads={},
    ),
    "continuous": Kind(
        "simulated", SIMULATED, "[[sleep=60s]]", {"max_tokens": 5000}, loads={}
    ),
    "llamacpp": Kind("llamacpp", LLAMACPP, LONG_PROMPT, LONG_OUTPUT, loads={"file": "tiny.gguf"}),
    "openai": Kind(
        "openai", OPENAI, LONG_PROMPT, LONG_OUTPUT, server="llamacpp_url",
        hangs=OPENAI_HANGS, faulty={"grammar": "root ::= ("},
    ),
}  # fmt: skip

_OWN = "what it makes of a request is the function's own affair"
KINDS["python"] = Kind(
    "python",
    {
        "callable": "tests.unit.engines.python_functions:act",
        "model": "m",
        "max_batch_size": SLOTS,
        "restart_delay": "10ms",
    },
    "spin",
    {"prompt": "spin"},
    lacks={
        "streams": "a function returns its answers whole",
        "parameters": _OWN,
        "continuation": _OWN,
        "usage": _OWN,
        "cache": _OWN,
        "backlog": _OWN,
        "context": _OWN,
    },
)

_TENSORS = "the protocol has tensors; parameters of text are what a model makes of them"
_OIP_LACKS = {
    "parameters": _TENSORS,
    "chat": _TENSORS,
    "continuation": _TENSORS,
    "usage": "the protocol, and Triton, count no tokens",
    "cache": "the protocol, and Triton, tell nothing of a model's cache",
    "backlog": "the protocol, and Triton, do not tell how much of an input was read",
    "context": "the protocol, and Triton, know no length of context",
    "events": "its answers are frames of gRPC, which ends its streams itself",
}
_OIP = {"slots": SLOTS, "poll_interval": "50ms", "models": {"m": "m"}}
KINDS["oip"] = Kind(
    "oip",
    _OIP,
    "wait",
    {"prompt": "word " * 4000},
    server="oip_address",
    hangs={"first_token_timeout": "2s"},
    faulty={"prompt": "refuse"},
    loads={},
    lacks=_OIP_LACKS,
)

REAL_KINDS = {  # with --engines; the real llama.cpp is above
    "vllm": Kind(
        "openai",
        {**OPENAI, "slots": SLOTS},
        LONG_PROMPT,
        LONG_OUTPUT,
        server="vllm",
        params={"ignore_eos": True},  # its tiny model ends where it likes
        hangs=OPENAI_HANGS,
        faulty={"temperature": 5.0},
        loads={"lora_path": "adapter"},
        lacks={"backlog": "vLLM does not tell how much of a prompt it has read"},
    ),
    "triton": replace(KINDS["oip"], long_prompt="wait " * 1000, server="triton"),
}
