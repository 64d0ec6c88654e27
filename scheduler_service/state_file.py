"""How is a small file replaced, so that a crash leaves the old one or the new one, whole?"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_document(path: Path, document: Any) -> None:
    """Write it as JSON, durably, in one move.

    Raises:
        OSError: the disk would not take it; the old file is as it was.
    """
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
