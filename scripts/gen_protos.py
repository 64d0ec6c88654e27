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


def sources() -> list[str]:
    """Return every .proto file, relative to protos/."""
    return sorted(str(p.relative_to(PROTOS)) for p in (PROTOS / "batchyard").rglob("*.proto"))


def run_protoc(*arguments: str) -> None:
    """Run the protoc inside grpcio-tools on files of protos/; raise SystemExit if it fails."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known}", *arguments]) != 0:
        raise SystemExit("protoc failed")


def generate(target: Path) -> list[Path]:
    """Write the generated modules below `target`; return their paths relative to it."""
    run_protoc(f"--python_out={target}", f"--pyi_out={target}", *sources())
    services = [source for source in sources() if source.endswith("_service.proto")]
    run_protoc(f"--grpc_python_out={target}", *services)
    return generated(target)


def generated(folder: Path) -> list[Path]:
    """Return the generated modules below `folder`, relative to it."""
    found = (path.relative_to(folder) for path in folder.rglob("*_pb2*.py*"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


def stale(target: Path = TARGET) -> list[str]:
    """Return what in `target` differs from freshly generated code, one line a file."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        differing = [
            f"{path} is stale or missing"
            for path in fresh
            if not (target / path).exists()
            or not filecmp.cmp(target / path, Path(folder) / path, shallow=False)
        ]
    return differing + [f"{path} has no .proto" for path in generated(target) if path not in fresh]


def main(arguments: list[str]) -> int:
    """Generate, or with `--check` compare; return the exit status."""
    if arguments != ["--check"]:
        generate(TARGET)
        return 0
    lines = stale()
    for line in lines:
        print(f"clients/python: {line}; run `make gen` and commit the result", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
