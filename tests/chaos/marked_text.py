"""What do engines with a process of their own answer? Text that its prompt decides, token by token.

In the form of the simulated engine's, with a mark of the prompt in place of the attempt's: a gap, a
repeat and the text of another request show, whichever engine wrote which part.
"""

from __future__ import annotations

import re
import time
from hashlib import blake2b
from typing import TYPE_CHECKING

from node_agent.engines.simulated_text import NONCE_LENGTH, tokens

if TYPE_CHECKING:
    from node_agent.engines.python_request import Request

PREFILL_S, TOKEN_S = 0.005, 0.015
_OUTPUT = re.compile(rf"(?:\d+:[0-9a-f]{{{NONCE_LENGTH}}} )+\Z")


def mark_of(prompt: str) -> str:
    """Return the mark that tokens of answers to `prompt` carry."""
    return blake2b(prompt.encode(), digest_size=NONCE_LENGTH // 2).hexdigest()


def split(text: str) -> tuple[str, int]:
    """Return the prompt in a prompt plus output, and how many tokens of output follow it.

    The prompt must not end in a digit.
    """
    found = _OUTPUT.search(text)
    return (text[: found.start()], found[0].count(" ")) if found else (text, 0)


def answer(prompt: str, first: int, count: int) -> str:
    """Return `count` tokens from index `first`."""
    return tokens(mark_of(prompt), first, count)


def answer_batch(requests: list[Request]) -> list[str]:
    """The function of nodes with the engine `python`; takes as long as its longest answer."""
    counts = [request.params.get("max_tokens", 1) for request in requests]
    time.sleep(PREFILL_S + TOKEN_S * max(counts))
    return [answer(request.text, 0, count) for request, count in zip(requests, counts, strict=True)]
