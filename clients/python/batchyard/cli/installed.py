"""Whether the parts that the command line starts are installed, without importing them."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.util import find_spec

from batchyard.cli.failures import CliError

# The extra of each service, and the distributions without which it cannot start.
_SERVICES = {
    "scheduler_service": (
        "scheduler",
        ("pydantic", "cryptography", "grpcio-health-checking", "grpcio-reflection", "aiohttp"),
    ),
    "node_agent": ("agent", ("pydantic", "cryptography", "psutil")),
}


def python_module(module: str) -> list[str]:
    """The command that runs a module with this interpreter.

    -P: a file in the user's folder that is called `logging.py` or so must not become part of it.
    """
    return [sys.executable, "-P", "-m", module]


def has_distribution(name: str) -> bool:
    """Whether a distribution is installed in this environment."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def require_service(module: str) -> None:
    """Fail with what to install unless the service's package and what it needs are there."""
    extra, needed = _SERVICES[module]
    missing = [] if find_spec(module) else [module]
    missing += [name for name in needed if not has_distribution(name)]
    if missing:
        raise CliError(
            f"the {extra} is not installed here",
            why=f"missing: {', '.join(missing)}",
            next_step=f"pip install 'batchyard[{extra}]'",
        )
