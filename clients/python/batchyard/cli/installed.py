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
    "simulator": ("simulator", ("pydantic",)),
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


def require_services(*modules: str) -> None:
    """Fail with all that is to be installed unless the packages and what they need are there."""
    extras: list[str] = []
    missing: list[str] = []
    for module in modules:
        extra, needed = _SERVICES[module]
        absent = [] if find_spec(module) else [module]
        absent += [name for name in needed if not has_distribution(name)]
        if absent:
            extras.append(extra)
            missing += [name for name in absent if name not in missing]
    if missing:
        verb = "is" if len(extras) == 1 else "are"
        raise CliError(
            f"the {' and the '.join(extras)} {verb} not installed here",
            why=f"missing: {', '.join(missing)}",
            next_step=f"pip install 'batchyard[{','.join(extras)}]'",
        )
