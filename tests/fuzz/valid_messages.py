"""Valid messages of clients and agents, which the fuzzer makes hostile ones of."""

from __future__ import annotations

from google.protobuf.message import Message

from batchyard.v1 import inference_pb2, node_service_pb2, scheduler_service_pb2, types_pb2
from scripts.golden_messages import parse_text, texts
from tests.integration.scheduler.harness import MODEL

LIVE = (3 << 40) + (1 << 39)  # stands for the id of an attempt that is live when it is sent


def golden(name: str) -> list[Message]:
    """The golden messages of this type."""
    found = [parse_text(path) for path in texts()]
    return [message for message in found if message.DESCRIPTOR.name == name]


def requests() -> list[inference_pb2.InferenceRequest]:
    """One of each kind of input, short of time, so that none is left waiting."""
    found = [m for m in golden("InferenceRequest") if isinstance(m, inference_pb2.InferenceRequest)]
    found += [
        inference_pb2.InferenceRequest(model=MODEL, text={"prompt": "[[tokens=3]]"}),
        inference_pb2.InferenceRequest(model=MODEL, chat={"messages": [{"role": "user"}]}),
    ]
    for request in found:
        request.timeout.FromMilliseconds(200)
    return found


def of_clients() -> list[Message]:
    """MultiplexRequests."""
    pb = scheduler_service_pb2
    calls = [
        pb.Call(call_id=n, request=request, stream=bool(n % 2))
        for n, request in enumerate(requests(), 1)
    ]
    return [
        pb.MultiplexRequest(open={"client_version": "fuzz/1"}),
        pb.MultiplexRequest(open={}, calls=calls[:3]),
        *(pb.MultiplexRequest(calls=[call]) for call in calls),
        pb.MultiplexRequest(calls=calls, cancel_call_ids=[1, 2, 99]),
        pb.MultiplexRequest(
            calls=[pb.Call(call_id=50, request=calls[-1].request, stream=True, attach={})]
        ),
        pb.MultiplexRequest(cancel_call_ids=[1]),
        pb.MultiplexRequest(done=True),
        *golden("MultiplexRequest"),
    ]


def of_agents() -> list[Message]:
    """ConnectRequests. No engine of theirs has the model that honest clients ask for."""
    pb = node_service_pb2
    engine = pb.EngineDescriptor(
        engine_id="e", kind="simulated", slots=4, mode=pb.ENGINE_MODE_CONTINUOUS,
        models=[pb.ModelDescriptor(model="rogue", streaming=True)],
    )  # fmt: skip
    descriptor = pb.NodeDescriptor(engines=[engine])
    hello = pb.Hello(node_id="rogue", boot_id="b", protocol_version=1, descriptor=descriptor)
    again = pb.Hello(
        node_id="rogue", boot_id="b", protocol_version=1, descriptor=descriptor, cluster_id="c1",
        highest_term=3,
        running_items=[pb.RunningItem(dispatch_id=LIVE, attempt=1, engine_id="e", model="rogue")],
    )  # fmt: skip
    load = pb.EngineLoad(
        engine_id="e", health=pb.ENGINE_HEALTH_SERVING, running_dispatch_ids=[LIVE]
    )
    deltas = types_pb2.TokenDeltas(ids=[LIVE], offsets=[0], texts=["EVIL"], token_counts=[1])
    result = pb.ItemResult(
        dispatch_id=LIVE, attempt=1, finish_reason=types_pb2.FINISH_REASON_STOP,
        outputs=[inference_pb2.Output(text="EVIL")],
    )  # fmt: skip
    return [
        pb.ConnectRequest(hello=hello),
        pb.ConnectRequest(hello=hello, credits=[pb.Credit(engine_id="e", total_inputs=4)]),
        pb.ConnectRequest(hello=again),
        pb.ConnectRequest(descriptor=descriptor),
        pb.ConnectRequest(credits=[pb.Credit(engine_id="e", total_inputs=8, total_tokens=100)]),
        pb.ConnectRequest(report=pb.NodeReport(engines=[load])),
        pb.ConnectRequest(deltas=deltas, results=[result]),
        pb.ConnectRequest(updates=[pb.ItemUpdate(dispatch_id=LIVE, state=pb.ITEM_STATE_RUNNING)]),
        pb.ConnectRequest(command_results=[pb.CommandResult(command_id=1)]),
        pb.ConnectRequest(pong=pb.Pong(nonce=1)),
        pb.ConnectRequest(drain=pb.Drain(reason="fuzz")),
        pb.ConnectRequest(),
        *golden("ConnectRequest"),
    ]
