"""Which engine does this name make? One literal table; options are checked whole, then built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from node_agent.engines.interface import Engine
from node_agent.engines.oip import OipEngine
from node_agent.engines.oip_options import OipOptions
from node_agent.engines.openai_presets import MODULES, LaunchOptions, openai_options
from node_agent.engines.python import PythonEngine
from node_agent.engines.python_options import PythonOptions
from node_agent.engines.simulated import SimulatedEngine
from node_agent.engines.simulated_options import SimulatedOptions
from service_kit.config_faults import wrong_value

Options = TypeVar("Options", bound=BaseModel)


def _simulated(engine_id: str, options: dict[str, Any]) -> Engine:
    return SimulatedEngine(engine_id, _checked(SimulatedOptions, options))


def _llamacpp(engine_id: str, options: dict[str, Any]) -> Engine:
    # Imported here: its client needs aiohttp, which only the extra `llamacpp` brings.
    try:
        from node_agent.engines.llamacpp import LlamacppEngine
        from node_agent.engines.llamacpp_options import LlamacppOptions
    except ImportError as error:
        raise ValueError(
            f"this kind needs the extra batchyard[llamacpp] ({error.name} is missing)"
        ) from error
    return LlamacppEngine(engine_id, _checked(LlamacppOptions, options))


def _openai(engine_id: str, options: dict[str, Any]) -> Engine:
    try:
        from node_agent.engines.openai import OpenaiEngine
        from node_agent.engines.openai_options import OpenaiOptions
    except ImportError as error:
        raise ValueError(
            f"this kind needs the extra batchyard[agent] ({error.name} is missing)"
        ) from error
    return OpenaiEngine(engine_id, _checked(OpenaiOptions, options))


def _python(engine_id: str, options: dict[str, Any]) -> Engine:
    return PythonEngine(engine_id, _checked(PythonOptions, options))


def _oip(engine_id: str, options: dict[str, Any]) -> Engine:
    return OipEngine(engine_id, _checked(OipOptions, options))


def _launched(kind: str) -> Callable[[str, dict[str, Any]], Engine]:
    def build(engine_id: str, options: dict[str, Any]) -> Engine:
        return _openai(engine_id, openai_options(kind, _checked(LaunchOptions, options)))

    return build


ENGINES: dict[str, Callable[[str, dict[str, Any]], Engine]] = {
    "llamacpp": _llamacpp,
    "openai": _openai,
    "oip": _oip,
    "python": _python,
    "simulated": _simulated,
    **{kind: _launched(kind) for kind in MODULES},
}


def build_engine(*, engine_id: str, kind: str, options: dict[str, Any]) -> Engine:
    """Return a new engine, not started.

    Raises:
        ValueError: unknown kind, or faulty options; all faults are named, one a line.
    """
    factory = ENGINES.get(kind)
    if factory is None:
        raise ValueError(
            f"engine {engine_id!r}: kind {kind!r} is not known; there are: "
            + ", ".join(sorted(ENGINES))
        )
    try:
        return factory(engine_id, options)
    except ValueError as error:
        lines = str(error).splitlines()
        text = "\n".join(f"engine {engine_id!r} ({kind}): {line}" for line in lines)
        raise ValueError(text) from error


def _checked(form: type[Options], options: dict[str, Any]) -> Options:
    try:
        return form.model_validate(options)
    except ValidationError as error:
        raise ValueError(_faults(form, error)) from error


def _faults(form: type[BaseModel], error: ValidationError) -> str:
    lines: list[str] = []
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in fault["loc"])
        message = wrong_value(fault)
        if fault["type"] == "extra_forbidden":
            message = "is not an option"
            if len(fault["loc"]) == 1:
                message += "; there are: " + ", ".join(sorted(form.model_fields))
        lines.append(f"{place}: {message}" if place else message)
    return "\n".join(lines)
