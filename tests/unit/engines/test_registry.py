"""Engines are made by name; every fault in their options is told at once, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.engines.openai_presets import LaunchOptions, openai_options
from node_agent.engines.registry import ENGINES, build_engine


def faults(kind: str, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:
        build_engine(engine_id="e1", kind=kind, options=options)
    return str(caught.value)


def test_unknown_kind_lists_the_known_ones() -> None:
    text = faults("lamacpp")
    assert "'lamacpp'" in text
    assert all(kind in text for kind in ENGINES)


def test_all_faults_are_told_at_once() -> None:
    text = faults("simulated", slots=0, latency="20", jitter=2, colour="blue")
    assert [line.split(": ", 2)[1] for line in text.splitlines()] == [
        "slots",
        "latency",
        "jitter",
        "colour",
    ]
    assert all(line.startswith("engine 'e1' (simulated): ") for line in text.splitlines())
    assert 'as "20ms"' in text
    assert "latency_per_token" in text  # the options that there are


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"models": []}, "at least one"),
        ({"models": ["a", {"name": "a"}]}, "named twice: a"),
        ({"models": [{"name": "a", "size": 3}]}, "models.0.size: is not an option"),
        ({"slots": 2, "max_batch_size": 3}, "max_batch_size: 3 is more than the 2 slots"),
        ({"mode": "dynamic"}, "mode: "),
    ],
)
def test_simulated_options_must_fit_together(options: dict[str, Any], words: str) -> None:
    assert words in faults("simulated", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of model_path, package, models and model_folder is needed"),
        ({"model_path": "a", "package": "b"}, "one of them, not several"),
        ({"model_path": "a", "slots": 9, "batch_tokens": 8}, "batch_tokens: 8 is less than"),
        ({"model_path": "a", "stall_timeout": "0s"}, "stall_timeout: "),
    ],
)
def test_llamacpp_options_must_fit_together(options: dict[str, Any], words: str) -> None:
    assert words in faults("llamacpp", **options)


def test_models_are_names_or_objects() -> None:
    models = ["a", {"name": "b", "base_model": "a", "context_length": 9, "task_types": ["chat"]}]
    engine = build_engine(engine_id="e", kind="simulated", options={"models": models})
    a, b = engine.describe().models
    assert (a.model, a.base_model) == ("a", "")
    assert (b.model, b.base_model, b.context_length, list(b.task_types)) == ("b", "a", 9, ["chat"])


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("openai", {}, "one of url and command"),
        ("openai", {"url": "http://h:1", "command": ["x", "{port}"]}, "one of url and command"),
        ("openai", {"command": ["x"]}, '"{port}" must stand'),
        ("openai", {"url": "ftp://h"}, 'write "http://127.0.0.1:8000"'),
        ("openai", {"url": "http://me:secret@h:1"}, "api_key_file"),
        ("openai", {"url": "http://h", "models": {"a": "x", "b": "x"}}, "two public names"),
        ("vllm", {}, "one of model (to start it) and url (to attach to it)"),
        ("vllm", {"url": "http://h", "args": ["-x"]}, "started here"),
        ("sglang", {"model": "m", "slotz": 3}, "slotz: is not an option"),
    ],
)
def test_options_of_servers_must_fit_together(
    kind: str, options: dict[str, Any], words: str
) -> None:
    assert words in faults(kind, **options)


def test_known_server_is_started_by_its_model_alone() -> None:
    launch = LaunchOptions(model="some/model", args=("--max-num-seqs", "8"), python="py")
    command = openai_options("vllm", launch)["command"]
    assert command[:4] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--model"]
    assert command[4] == "some/model"
    assert command[-4:] == ["--port", "{port}", "--max-num-seqs", "8"]
    build_engine(engine_id="e", kind="vllm", options={"model": "some/model", "slots": 8})
