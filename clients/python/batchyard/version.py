"""Which version of the distribution is installed?"""

from __future__ import annotations

from functools import cache

__all__ = ["version"]


@cache
def version() -> str:
    """The installed version, or "0.0.0" when run from a tree that is not installed."""
    from importlib import metadata  # 10 ms that `import batchyard` need not pay

    try:
        return metadata.version("batchyard")
    except metadata.PackageNotFoundError:
        return "0.0.0"
