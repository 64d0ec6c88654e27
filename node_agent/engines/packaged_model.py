"""Where is the model file inside an installed package? Found without importing that package."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path


def find_packaged_model(package: str) -> Path | None:
    """Return the one GGUF file among the files of distribution `package`; None: not installed.

    Raises:
        ValueError: the package is there but holds no GGUF file, or several.
    """
    try:
        listed = importlib.metadata.files(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [Path(str(f.locate())) for f in listed or () if f.suffix == ".gguf"]
    found = [path for path in paths if path.is_file()]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"package {package!r} should hold one .gguf file, it holds: {names}")
    return found[0].resolve()
