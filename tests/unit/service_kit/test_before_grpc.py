"""The services start processes, so gRPC's fork handlers must be off before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SPY = """
import os, sys
class Spy:
    def find_spec(self, name, *_):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
sys.meta_path.insert(0, Spy())
import {service}.__main__
"""


@pytest.mark.parametrize("service", ["scheduler_service", "node_agent"])
def test_services_switch_grpcs_fork_handlers_off_before_they_import_grpc(service: str) -> None:
    environ = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", SPY.format(service=service)],
        capture_output=True,
        text=True,
        env=environ,
        check=True,
    )
    assert done.stdout.split() == ["false"]
