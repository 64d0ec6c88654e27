"""Refuse an interpreter that cannot run Batchyard, saying what to do instead.

Runs on any Python 3 before anything is installed: old syntax and the standard library only.
"""

import importlib.util
import sys

OLDEST = (3, 11)


def complaint(version: "tuple[int, ...]", modules_missing: bool) -> str:
    """Return why this interpreter will not do; empty if it will."""
    if version[:2] < OLDEST:
        return (
            "Batchyard needs Python 3.11 or newer; {} is Python {}.{}.\n"
            "Install a newer one and name it: make setup PYTHON=python3.12"
        ).format(sys.executable, *version[:2])
    if modules_missing:
        return (
            "This Python cannot create virtual environments: `venv` or `ensurepip` is missing.\n"
            "On Debian and Ubuntu: apt-get install python3-venv"
        )
    return ""


if __name__ == "__main__":
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    sys.exit(complaint(sys.version_info[:3], bool(missing)) or None)
