"""What the package exports, and that importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import batchyard
from batchyard import v1
from batchyard.v1 import (
    admin_service_pb2,
    inference_pb2,
    node_service_pb2,
    report_pb2,
    scheduler_service_pb2,
    types_pb2,
)


@pytest.mark.parametrize(
    "module",
    [
        admin_service_pb2,
        inference_pb2,
        node_service_pb2,
        report_pb2,
        scheduler_service_pb2,
        types_pb2,
    ],
)
def test_v1_exports_every_message_enum_and_stub(module: object) -> None:
    descriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    names = {
        *descriptor.message_types_by_name,
        *descriptor.enum_types_by_name,
        *(f"{service}Stub" for service in descriptor.services_by_name),
    }
    assert names <= set(v1.__all__)
    assert all(hasattr(v1, name) for name in names)


def test_every_name_of_the_package_is_there() -> None:
    for name in batchyard.__all__:
        assert getattr(batchyard, name)
    assert set(batchyard.__all__) <= set(dir(batchyard))
    with pytest.raises(AttributeError, match="no attribute 'Cliant'"):
        batchyard.Cliant  # noqa: B018


def test_importing_the_package_loads_neither_grpc_nor_asyncio() -> None:
    code = (
        "import sys, batchyard; from batchyard import errors;"
        "print([m for m in ('grpc', 'asyncio', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_client_imports_without_optional_packages() -> None:
    """Only grpcio, protobuf and googleapis-common-protos; never a server's package."""
    code = """
import sys
BLOCKED = ("opentelemetry", "pydantic", "click", "rich", "yaml", "aiohttp", "uvloop",
           "psutil", "scheduler_service", "node_agent", "grpc_status")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
import batchyard
for name in batchyard.__all__:
    getattr(batchyard, name)
import batchyard.status, batchyard.tracing, batchyard.v1
with batchyard.Client("127.0.0.1:9", retries=0) as client:
    try:
        client.generate("hi")
    except batchyard.errors.Unavailable as error:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "refused", done.stderr
    assert not done.stderr
