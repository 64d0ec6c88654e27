"""Which version of batchyard is this?"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """The installed version; "0": run from a tree that is not installed."""
    try:
        return version("batchyard")
    except PackageNotFoundError:
        return "0"
