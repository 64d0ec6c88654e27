"""The committed generated code is what protos/ makes."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.gen_protos import TARGET, generated, stale


def test_committed_code_is_fresh() -> None:
    assert stale() == [], "run `make gen` and commit the result"


def test_edited_missing_and_orphaned_modules_are_found(tmp_path: Path) -> None:
    for module in generated(TARGET):
        (tmp_path / module.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(TARGET / module, tmp_path / module)
    v1 = tmp_path / "batchyard" / "v1"
    (v1 / "types_pb2.py").write_text("# edited by hand\n")
    (v1 / "report_pb2.pyi").unlink()
    (v1 / "gone_pb2.py").touch()

    assert stale(tmp_path) == [
        "batchyard/v1/report_pb2.pyi is stale or missing",
        "batchyard/v1/types_pb2.py is stale or missing",
        "batchyard/v1/gone_pb2.py has no .proto",
    ]
