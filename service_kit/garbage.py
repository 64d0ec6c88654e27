"""How often does Python look for reference cycles in a service? Seldom."""

from __future__ import annotations

import gc


def quieten() -> None:
    """Call it once a service is up. What exists then lives for ever, and what comes with requests
    is freed by reference counts; without this a full collection walks all of it many times a second
    under load, and a small one stands in the way of each batch.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
