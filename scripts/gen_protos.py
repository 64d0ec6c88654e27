"""Generate the Python code of protos/ into clients/python (or another folder, for `--check`).

`make gen` writes it; `make gen-check` generates into a temporary folder and compares, so it works
in a dirty tree. The output is deterministic for one version of grpcio-tools (pinned in
pyproject.toml: its gencode, 6.31.1, runs on protobuf 6.31.1 up to 7.x).
"""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "clients" / "python"


def sources() -> list[Path]:
    return sorted(p.relative_to(PROTOS) for p in (PROTOS / "batchyard").rglob("*.proto"))


def generate(target: Path) -> list[Path]:
    """Write the generated modules below `target`; return their paths relative to it."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTOS}", f"-I{well_known}"]
    arguments += [f"--python_out={target}", f"--pyi_out={target}"]
    plain = [str(s) for s in sources()]
    if protoc.main([*arguments, *plain]) != 0:
        raise SystemExit("protoc failed")
    services = [str(s) for s in sources() if s.stem.endswith("_service")]
    if protoc.main([*arguments, f"--grpc_python_out={target}", *services]) != 0:
        raise SystemExit("protoc failed")
    return sorted(p.relative_to(target) for p in target.rglob("*_pb2*.py*") if "__pycache__" not in p.parts)


def check() -> int:
    """Compare the committed code with freshly generated code; 0 when they are equal."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        committed = sorted(
            p.relative_to(TARGET) for p in TARGET.rglob("*_pb2*.py*") if "__pycache__" not in p.parts
        )
        stale = [str(p) for p in fresh if not (TARGET / p).exists() or not filecmp.cmp(TARGET / p, Path(folder) / p, shallow=False)]
        stale += [f"{p} (no .proto)" for p in committed if p not in fresh]
    for path in stale:
        print(f"stale: clients/python/{path}", file=sys.stderr)
    if stale:
        print("run `make gen` and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    for written in generate(TARGET):
        print(written)
