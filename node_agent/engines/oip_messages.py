"""What goes over the wire in the Open Inference Protocol v2, and in Triton's additions to it?

The messages are built here from a table of their fields, in a pool of their own: other packages
(`tritonclient`) register the same names in protobuf's common pool, where they could not be twice.
Numbers and types are the protocol's; fields that are not used here are left out, and survive as
unknown ones.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "/inference.GRPCInferenceService/"

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint64": _FIELD.TYPE_UINT64,
    "double": _FIELD.TYPE_DOUBLE,
}
# name: (number, type); "*" repeated, "@" a map from strings, "?" a member of the one oneof
_TABLE: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "Ready": {"ready": (1, "bool")},
    "ServerMetadata": {"name": (1, "string"), "version": (2, "string")},
    "ModelName": {"name": (1, "string"), "version": (2, "string")},
    "TensorMetadata": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "*int64")},
    "ModelMetadata": {
        "name": (1, "string"),
        "platform": (3, "string"),
        "inputs": (4, "*TensorMetadata"),
        "outputs": (5, "*TensorMetadata"),
    },
    "TransactionPolicy": {"decoupled": (1, "bool")},
    "Config": {"max_batch_size": (4, "int32"), "transaction_policy": (19, "TransactionPolicy")},
    "ModelConfig": {"config": (1, "Config")},
    "Parameter": {
        "bool_param": (1, "?bool"),
        "int64_param": (2, "?int64"),
        "string_param": (3, "?string"),
        "double_param": (4, "?double"),
    },
    "InputTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "*int64")},
    "WantedTensor": {"name": (1, "string")},
    "InferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "@Parameter"),
        "inputs": (5, "*InputTensor"),
        "outputs": (6, "*WantedTensor"),
        "raw_input_contents": (7, "*bytes"),
    },
    "InferResponse": {
        "model_name": (1, "string"),
        "id": (3, "string"),
        "parameters": (4, "@Parameter"),
        "outputs": (5, "*InputTensor"),
        "raw_output_contents": (6, "*bytes"),
    },
    "StreamResponse": {"error_message": (1, "string"), "infer_response": (2, "InferResponse")},
    "IndexRequest": {"repository_name": (1, "string"), "ready": (2, "bool")},
    "IndexedModel": {"name": (1, "string"), "version": (2, "string"), "state": (3, "string")},
    "Index": {"models": (1, "*IndexedModel")},
    "RepositoryChange": {"model_name": (2, "string"), "parameters": (3, "@Parameter")},
}


def _build() -> dict[str, type[Any]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="batchyard_oip.proto", package="batchyard_oip", syntax="proto3"
    )
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"batchyard_oip.{name}") for name in _TABLE)
    return {each.name: message_factory.GetMessageClass(each) for each in found}


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    mark, base = (kind[0], kind[1:]) if kind[0] in "*@?" else ("", kind)
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if mark == "?":
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if mark in ("*", "@"):
        field.label = _FIELD.LABEL_REPEATED
    if mark == "@":
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, base)
        base = f"{message.name}.{entry.name}"
    if base in _SCALARS:
        field.type = _SCALARS[base]
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".batchyard_oip.{base}"


MESSAGES = _build()
METHODS = {  # name: (what goes out, what comes back)
    "ServerReady": ("Empty", "Ready"),
    "ServerMetadata": ("Empty", "ServerMetadata"),
    "ModelReady": ("ModelName", "Ready"),
    "ModelMetadata": ("ModelName", "ModelMetadata"),
    "ModelConfig": ("ModelName", "ModelConfig"),
    "ModelInfer": ("InferRequest", "InferResponse"),
    "ModelStreamInfer": ("InferRequest", "StreamResponse"),
    "RepositoryIndex": ("IndexRequest", "Index"),
    "RepositoryModelLoad": ("RepositoryChange", "Empty"),
    "RepositoryModelUnload": ("RepositoryChange", "Empty"),
}
