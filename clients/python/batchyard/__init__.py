"""Client of Batchyard, a scheduler for AI inference.

    from batchyard import Client, AsyncClient, errors

    with Client("localhost:7611") as client:
        print(client.generate("Why is the sky blue?", model="small").text)

Names are imported when they are first used, so `import batchyard` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, whose import takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from batchyard import errors
    from batchyard.admin import Admin
    from batchyard.async_admin import AsyncAdmin
    from batchyard.async_client import AsyncClient
    from batchyard.async_jobs import AsyncJobs, JobOptions
    from batchyard.client import Client, Stream
    from batchyard.errors import BatchyardError
    from batchyard.jobs import Jobs
    from batchyard.output import StreamEvent
    from batchyard.results import Attempt, Result, Timings, ToolCall, Usage
    from batchyard.retry import Retry
    from batchyard.stream import AsyncStream

    __version__: str

__all__ = [
    "Client",
    "AsyncClient",
    "Admin",
    "AsyncAdmin",
    "AsyncJobs",
    "Jobs",
    "JobOptions",
    "errors",
    "BatchyardError",
    "Result",
    "Stream",
    "AsyncStream",
    "StreamEvent",
    "Usage",
    "Timings",
    "Attempt",
    "ToolCall",
    "Retry",
    "__version__",
]

_MODULES = {
    "Client": "client",
    "AsyncClient": "async_client",
    "Admin": "admin",
    "AsyncAdmin": "async_admin",
    "AsyncJobs": "async_jobs",
    "JobOptions": "async_jobs",
    "Jobs": "jobs",
    "BatchyardError": "errors",
    "Result": "results",
    "Stream": "client",
    "AsyncStream": "stream",
    "StreamEvent": "output",
    "Usage": "results",
    "Timings": "results",
    "Attempt": "results",
    "ToolCall": "results",
    "Retry": "retry",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "errors":
        return importlib.import_module("batchyard.errors")
    if name == "__version__":
        from batchyard.version import version

        return version()
    if name not in _MODULES:
        raise AttributeError(f"module 'batchyard' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"batchyard.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
