"""Write docs/configuration.md from the configuration models (`--check` fails if it is stale).

Every key, its form, its default and what it means come from the models themselves, so a new option
is documented by its own docstring. `tests/unit/scheduler/test_config_docs.py` runs the check.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from node_agent.config import AgentConfig
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.oip_options import OipOptions
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_presets import LaunchOptions
from node_agent.engines.python_options import PythonOptions
from node_agent.engines.simulated_options import SimulatedOptions
from scheduler_service import policies
from scheduler_service.config import BUILT_IN_TASK_TYPES, SchedulerConfig
from scheduler_service.config_policies import option_fields
from scheduler_service.live_policy import LIVE
from service_kit.units import write_duration, write_size

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "configuration.md"
KINDS = (
    ("simulated", SimulatedOptions),
    ("llamacpp", LlamacppOptions),
    ("openai", OpenaiOptions),
    ("vllm and sglang", LaunchOptions),
    ("oip", OipOptions),
    ("python", PythonOptions),
)

INTRODUCTION = """\
# Configuration

Made from the models by `scripts/config_docs.py`; do not edit.

One YAML file per role: `scheduler.yaml` and `agent.yaml`, given by `-c FILE`, else looked for in
`~/.config/batchyard` and in `/etc/batchyard`. Without a file the defaults below hold.

| stronger first | for example |
|---|---|
| flag | `--set queue.max_requests=500`, or the flag of its own where there is one |
| environment | `BATCHYARD_SCHEDULER__QUEUE__MAX_REQUESTS=500`, `BATCHYARD_AGENT__ROLE=backup` |
| file | `queue: {max_requests: 500}` |
| default | the tables below |

Values of flags and of the environment are YAML, so lists and numbers can be written. Units are part
of the value: durations are `500ms`, `3s`, `1m`; sizes are `512B`, `64MiB`. Unknown keys are errors.
`batchyard config check FILE` tells all that is wrong, each with its place, and exits with 1.

Telemetry is configured by the standard `OTEL_*` variables alone.
"""


LIVE_INTRODUCTION = """\
### Without a restart

`batchyard policy apply` puts these in force while the scheduler runs, until it restarts: see
[cli.md](cli.md#policy). All else takes a restart.
"""


def document() -> str:
    """The whole document."""
    parts = [INTRODUCTION, "## scheduler.yaml\n", *_tables(SchedulerConfig, "")]
    parts += [_policy_table(), _task_type_table(), _live_table()]
    parts += ["## agent.yaml\n", *_tables(AgentConfig, "")]
    for kind, options in KINDS:
        parts.append(f"### Engines of kind {kind}\n")
        parts.append(_table(options))
    return "\n".join(parts)


def _live_table() -> str:
    """What needs no restart."""
    rows = [
        f"| `{name}` | {', '.join(f'`{key}`' for key in keys) or 'all of it'} |"
        for name, keys in LIVE.items()
    ]
    return "\n".join([LIVE_INTRODUCTION, "| section | keys |", "|---|---|", *rows]) + "\n"


def _tables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """The table of a model, then those of its sections."""
    if prefix:
        yield f"### {prefix}\n"
        yield _sentence(model.__doc__) + "\n"
    yield _table(model)
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is not None:
            yield from _tables(section, f"{prefix}.{name}" if prefix else name)


def _table(model: type[BaseModel]) -> str:
    meanings = _docstrings(model)
    rows = ["| key | form | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        meaning = meanings.get(name, "") or (_sentence(section.__doc__) if section else "")
        cells = (f"`{name}`", _form(field), _default(field), meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands under each field, its own or one that it has from another section."""
    (parent, *_) = model.__bases__
    inherited = parent is not BaseModel and issubclass(parent, BaseModel)
    return (_docstrings(parent) if inherited else {}) | _own_docstrings(model)


def _own_docstrings(model: type[BaseModel]) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(statement.target, ast.Name)
            found[statement.target.id] = _sentence(ast.literal_eval(following.value))
    return found


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section, of a list of them or of a mapping to them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if annotation.__name__ not in ("PolicyChoice", "Price") else None
    return next((s for part in get_args(annotation) if (s := _section(part))), None)


def _reader(field: FieldInfo) -> str:
    """Name of the function that reads the value; empty: none of ours."""
    metadata = [*field.metadata, *_inner_metadata(field.annotation)]
    names = [m.func.__name__ for m in metadata if isinstance(m, BeforeValidator)]
    return next(iter(names), "")


def _inner_metadata(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return list(annotation.__metadata__)
    if get_origin(annotation) in (Union, UnionType):
        return [m for part in get_args(annotation) for m in _inner_metadata(part)]
    return []


def _form(field: FieldInfo) -> str:
    reader = _reader(field)
    if reader in ("duration_ns", "duration_s"):
        return "duration"
    return {"size_bytes": "size", "_money": "price", "_address": "host:port"}.get(
        reader, _kind(field.annotation)
    )


def _kind(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inside[0])
    if origin in (Union, UnionType):
        return ", ".join(_kind(part) for part in inside if part is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin is tuple:
        return f"list of {_kind(inside[0])}"
    if origin is dict:
        return f"{_kind(inside[1])} by name"
    names = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text"}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "policy" if annotation.__name__ == "PolicyChoice" else "section"
    return names.get(annotation, "path" if annotation is Path else "any")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True, validated_data={})
    if _reader(field) == "duration_ns" and value is not None:
        return f"`{write_duration(value)}`"
    if _reader(field) == "duration_s" and value is not None:
        return f"`{write_duration(round(value * 1e9))}`"
    if _reader(field) == "size_bytes" and value is not None:
        return f"`{write_size(value)}`"
    return _value(value)


def _value(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, BaseModel):
        return f"`{value.name}`" if hasattr(value, "name") else ""
    if isinstance(value, Mapping):
        return "built in, see below" if value else "`{}`"
    if isinstance(value, tuple):
        return ", ".join(_value(part) for part in value) or "`[]`"
    return f"`{value}`" if value != "" else "empty"


def _policy_table() -> str:
    """Every policy that can be named, with its options."""
    rows = [
        "### The policies\n",
        "Name one (`order: strict`), or name it with options",
        "(`batch: {name: windowed, options: {longest_wait: 20ms}}`).\n",
        "| question | policy | what it does | options |",
        "|---|---|---|---|",
    ]
    for question in policies.DEFAULTS:
        for name, policy in policies.REGISTRY[question].items():
            mark = " (default)" if policies.DEFAULTS[question] == name else ""
            text = _sentence((policy.__doc__ or "").split("\n\n")[0])
            options = ", ".join(_option(field) for field in option_fields(question, name))
            rows.append(f"| `{question}` | `{name}`{mark} | {text} | {options or 'none'} |")
    return "\n".join(rows) + "\n"


def _option(field: dataclasses.Field[Any]) -> str:
    value = write_duration(field.default) if field.type == "Duration" else field.default  # type: ignore[arg-type]
    return f"`{field.name}: {value}`"


def _task_type_table() -> str:
    """The built-in task types."""
    rows = [
        "### The built-in task types\n",
        "What a file says of one is laid over it, key by key. `summary`, `qa` and `code` are taken",
        "as aliases in requests.\n",
        "| task type | `priority` | `expected_output_tokens` |",
        "|---|---|---|",
    ]
    for name, given in BUILT_IN_TASK_TYPES.items():
        tokens = given.get("expected_output_tokens", "absent")
        rows.append(f"| `{name}` | {given['priority']} | {tokens} |")
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> int:
    """Write the document, or with --check compare it."""
    fresh = document()
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == fresh:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is stale: run scripts/config_docs.py")
        return 1
    TARGET.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
