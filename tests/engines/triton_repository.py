"""Write a repository of models as Triton loads it, and the command that serves it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent

_TEXTS = """
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
_NUMBERS = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_ROWS = 'output [ { name: "rows" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
_BATCHES = "max_batch_size: 8\ndynamic_batching { }\n"
_ORDERS = """
max_batch_size: 1
dynamic_batching {
  priority_levels: 10
  default_priority_level: 5
  default_queue_policy { max_queue_size: 64 }
}
"""
CONFIGURATIONS = {
    "m": _TEXTS,
    "words": _TEXTS,
    "later": _TEXTS,
    "double": _NUMBERS + _ROWS + _BATCHES,
    "slow": _NUMBERS + _ORDERS,
}
LOADED = ("m", "words", "double", "slow")  # at the start; the rest when it is told to


def write(folder: Path) -> None:
    """Write every model into `folder`."""
    for name, configuration in CONFIGURATIONS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(
            f'backend: "python"\ninstance_group [ {{ kind: KIND_CPU count: 1 }} ]\n{configuration}'
        )
        shutil.copy(HERE / "triton_models.py", folder / name / "1" / "model.py")


def command(python: Path, folder: Path, *flags: str) -> tuple[Sequence[str], dict[str, str]]:
    """How to serve what `write` wrote into `folder`, and with which environment.

    `python`: of an environment with nvidia-pytriton, which brings Triton itself; its backend wants
    the stub of that very Python beside it, and finds numpy by the first `python` of the path.
    """
    packages = python.parent.parent / "lib" / "python3.11" / "site-packages"
    server = packages / "pytriton" / "tritonserver"
    backends = folder.with_name(f"{folder.name}-backends")
    shutil.copytree(server / "backends", backends)
    stub = server / "python_backend_stubs" / "3.11" / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    repository = (f"--model-repository={folder}", f"--backend-directory={backends}")
    loaded = [f"--load-model={name}" for name in LOADED]
    env = {
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    control = "--model-control-mode=explicit"
    return [str(server / "bin" / "tritonserver"), *repository, control, *loaded, *flags], env
