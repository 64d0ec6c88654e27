"""A stand-in for both services: it keeps their command line contract and does nothing else."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import asyncio, json, os, signal, sys
from pathlib import Path
arguments = sys.argv[1:]
if "--check-config" in arguments:
    problems = open(arguments[-1]).read().splitlines()
    print(*problems, sep="\\n", file=sys.stderr)
    sys.exit(1 if problems else 0)
given = dict(zip(arguments, arguments[1:]))
file = Path(given["-c"])
config = file.read_text().split()
if "fail" in config:
    print("cannot start: the disk is gone", file=sys.stderr)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in config else lambda *_: os._exit(0))
print("x" * 200_000, file=sys.stderr)
print("a line of the log", file=sys.stderr, flush=True)

def ready():
    print(json.dumps({"event": "ready", "arguments": arguments}), flush=True)

if "--node-id" in given:
    file.with_name(given["--node-id"] + ".up").touch()
if "--admin-port" not in given:
    ready()
    signal.pause()

# A scheduler: the nodes are those whose agents left a file beside the configuration.
import grpc
from batchyard.v1 import admin_service_pb2, admin_service_pb2_grpc, report_pb2

class Admin(admin_service_pb2_grpc.AdminServiceServicer):
    async def WatchReport(self, request, context):
        while True:
            names = [path.stem for path in file.parent.glob("*.up")]
            names += ["auto-1", "auto-2"] if "autoscale:" in config else []
            healthy = report_pb2.NODE_HEALTH_HEALTHY
            nodes = [report_pb2.NodeSummary(node_id=name, health=healthy) for name in names]
            report = report_pb2.Report(nodes=nodes)
            yield admin_service_pb2.WatchReportResponse(report=report)
            await asyncio.sleep(0.05)

async def serve():
    server = grpc.aio.server()
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(Admin(), server)
    server.add_insecure_port("127.0.0.1:" + given["--admin-port"])
    await server.start()
    ready()
    await asyncio.Event().wait()

asyncio.run(serve())
"""


def install(folder: Path) -> None:
    """Put both stand-ins into a folder that is to stand in front of sys.path."""
    for module in ("scheduler_service", "node_agent"):
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text("")
        (folder / module / "__main__.py").write_text(SOURCE)
