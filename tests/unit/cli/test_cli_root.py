"""The command line as a whole: fast help, aliases, exit codes, addresses, no server code."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchyard import errors
from batchyard.cli.contexts import Context, ContextFile, load, save
from batchyard.cli.root import ENTRIES
from batchyard.cli.settings import Settings, contexts_path
from batchyard.cli.translate import cli_error, exit_code
from tests.unit.cli.conftest import Cli

CLI_FOLDER = Path(sys.modules["batchyard.cli.root"].__file__ or "").parent


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def best_of(count: int, *arguments: str) -> float:
    """Processor seconds of the cheapest run: the machine may be busy with others' tests."""
    times = []
    for _ in range(count):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "batchyard.cli", *arguments], check=True, capture_output=True
        )
        after = os.times()
        times.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return min(times)


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["nodes", "--help"]])
def test_help_and_version_are_there_at_once(arguments: list[str]) -> None:
    assert best_of(5, *arguments) < 0.3


def test_help_imports_neither_grpc_nor_protobuf_nor_rich() -> None:
    code = (
        "import sys; from batchyard.cli.root import execute; execute(sys.argv[1:]);"
        "print(sorted({'grpc', 'google.protobuf', 'rich', 'yaml'} & sys.modules.keys()))"
    )
    for command in (["--help"], *([name, "--help"] for name in PURE)):
        done = python(code, *command)
        assert done.stdout.splitlines()[-1] == "[]", (command, done.stderr)


# These pass --help on to somebody else.
PASSED_ON = {"scheduler", "agent", "tokens", "certs", "demo", "simulate", "plan", "replay"}
PURE = sorted(set(ENTRIES) - PASSED_ON)


def test_every_module_of_the_command_line_imports_no_server_package() -> None:
    modules = [
        "batchyard.cli." + ".".join(path.relative_to(CLI_FOLDER).with_suffix("").parts)
        for path in CLI_FOLDER.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "servers = ('scheduler_service', 'node_agent', 'service_kit', 'simulator')\n"
        "print([m for m in sys.modules if m.split('.')[0] in servers])"
    )
    done = python(code, *modules)
    assert done.stdout == "[]\n", done.stderr


def test_no_source_line_of_the_command_line_imports_a_server_package() -> None:
    for path in CLI_FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            roots = {name.split(".")[0] for name in names}
            assert not roots & {"scheduler_service", "node_agent", "service_kit", "simulator"}, path


def test_missing_click_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'click'\", name='click')"
    )
    done = subprocess.run(
        [sys.executable, "-m", "batchyard.cli", "version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'batchyard[cli]'" in done.stderr


def test_every_listed_command_is_there_and_has_help(cli: Cli) -> None:
    for name in PURE:
        done = cli(name, "--help")
        assert done.exit_code == 0, done.err
        assert done.out.startswith("Usage: batchyard " + name)


@pytest.mark.parametrize("alias", ["node", "model", "queue", "request", "event"])
def test_singular_nouns_are_aliases(cli: Cli, alias: str) -> None:
    done = cli(alias, "--help")
    assert done.exit_code == 0
    assert cli("--help").out.count(f"  {alias} ") == 0


@pytest.mark.parametrize("noun", ["nodes", "models", "queues", "requests", "events"])
def test_noun_without_a_verb_lists(cli: Cli, noun: str) -> None:
    """It asks for the list, here of nobody: not reachable, not a usage error."""
    server = ["--address", "127.0.0.1:9", "--admin-address", "127.0.0.1:9"]
    assert cli(noun, *server).exit_code == 3
    assert cli(noun, "-o", "json", *server).exit_code == 3


def test_unknown_command_suggests_and_exits_2(cli: Cli) -> None:
    done = cli("node-s")
    assert done.exit_code == 2
    assert "nodes" in done.err


def test_bad_option_exits_2(cli: Cli) -> None:
    assert cli("nodes", "list", "-o", "xml").exit_code == 2
    assert cli("run", "hi", "--max-wait", "5").exit_code == 2
    assert cli("run", "hi", "--priority", "11").exit_code == 2


def test_priority_has_no_short_option_and_says_which_end_is_urgent(cli: Cli) -> None:
    shown = cli("run", "--help").out
    line = next(line for line in shown.splitlines() if "--priority" in line)
    assert line.strip().startswith("--priority")
    assert "10 = most urgent" in shown


def test_nobody_at_the_address_exits_3_and_says_what_to_start(cli: Cli) -> None:
    done = cli("--admin-address", "127.0.0.1:1", "nodes", "list")
    assert done.exit_code == 3
    assert "127.0.0.1:1" in done.err
    assert "next:  start one here with `batchyard dev`" in done.err


def test_demo_that_is_not_there_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "batchyard.cli.demo", None)
    done = cli("demo")
    assert done.exit_code == 1
    assert "no demo" in done.err


def test_address_is_option_then_environment_then_context_then_default(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().client_address() == "127.0.0.1:7611"
    save(contexts_path(), ContextFile("lab", {"lab": Context("lab:7611", None)}))
    assert Settings().client_address() == "lab:7611"
    assert Settings().admin_client_address() == "lab:7613"
    monkeypatch.setenv("BATCHYARD_ADDRESS", "env:1000")
    assert Settings().client_address() == "env:1000"
    assert Settings(address="flag:2000").client_address() == "flag:2000"


def test_admin_address_follows_the_client_address_unless_it_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().admin_client_address() == "127.0.0.1:7613"
    assert Settings(address="[::1]:7711").admin_client_address() == "[::1]:7713"
    assert Settings(address="unix:/run/b").admin_client_address() == "127.0.0.1:7613"
    monkeypatch.setenv("BATCHYARD_ADMIN_ADDRESS", "admin:1")
    assert Settings(address="flag:2000").admin_client_address() == "admin:1"


def test_contexts_are_saved_chosen_and_listed(cli: Cli) -> None:
    assert cli("context", "save", "a", "--address", "a:7611").exit_code == 0
    assert cli("context", "save", "b", "--address", "b:1", "--admin-address", "b:2").exit_code == 0
    assert load(contexts_path()).current == "b"
    assert cli("context", "use", "a").exit_code == 0
    rows = cli("context", "list", "-o", "json").json["contexts"]
    assert rows == [
        {"name": "a", "current": True, "address": "a:7611", "admin_address": None,
         "tls_ca": None, "token_file": None},
        {"name": "b", "current": False, "address": "b:1", "admin_address": "b:2",
         "tls_ca": None, "token_file": None},
    ]  # fmt: skip
    done = cli("context", "use", "c")
    assert done.exit_code == 1
    assert "known: a, b" in done.err


def test_malformed_context_file_is_named(cli: Cli) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_text("contexts: {a: 5}\n")
    done = cli("context", "list")
    assert done.exit_code == 1
    assert str(contexts_path()) in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(cli: Cli, shell: str) -> None:
    assert "_BATCHYARD_COMPLETE" in cli("completion", shell).out


def test_completion_completes_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from batchyard.cli.__main__ import main; main()"],
        env={
            **os.environ,
            "_BATCHYARD_COMPLETE": "bash_complete",
            "COMP_WORDS": "batchyard no",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "nodes" in done.stdout


def test_errors_of_every_kind_have_their_exit_code() -> None:
    assert exit_code(errors.Unavailable("x")) == 3
    assert exit_code(errors.Unavailable("x", reason="SCHEDULER_DRAINING")) == 3
    assert exit_code(errors.Unavailable("x", reason="NO_CAPACITY")) == 1
    assert exit_code(errors.DeadlineExceeded("x", reason="DEADLINE_UNREACHABLE")) == 4
    assert exit_code(errors.Overloaded("x", reason="MAX_WAIT_EXCEEDED")) == 4
    assert exit_code(errors.Overloaded("x", reason="QUEUE_FULL")) == 1


@pytest.mark.parametrize("reason", sorted(errors.REASONS))
def test_error_text_says_what_happened_and_names_the_reason(reason: str) -> None:
    kind = errors.REASONS[reason]
    error = kind("it went wrong", reason=reason, metadata={"limit": "4"}, request_id="r1")
    text = cli_error(error, address="127.0.0.1:7611").text()
    assert text.startswith("error: it went wrong")
    assert reason in text
    assert "limit 4" in text
    assert "request r1" in text


@pytest.mark.parametrize(
    ("reason", "more", "next_step"),
    [
        ("REQUEST_ID_CONFLICT", {}, "--request-id"),
        ("REQUEST_ID_CONFLICT", {"field": "job_id"}, "another --id"),
        ("RESOURCE_NOT_FOUND", {"metadata": {"resource": "job/j"}}, "batchyard jobs list"),
        ("UNSUPPORTED_FEATURE", {}, "update the scheduler"),
        ("UNSUPPORTED_FEATURE", {"field": "input.json_lines[1].body.best_of"}, "leave out"),
    ],
)
def test_next_step_is_one_of_the_command_that_failed(
    reason: str, more: dict[str, Any], next_step: str
) -> None:
    error = errors.REASONS[reason]("it went wrong", reason=reason, **more)
    assert next_step in cli_error(error, address="127.0.0.1:7611").text()


@pytest.mark.parametrize("command", ["jobs show", "nodes drain", "requests cancel"])
def test_argument_that_is_no_text_is_a_usage_error(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "\udcff")
    assert done.exit_code == 2
    assert done.err == "error: '\\udcff' is not UTF-8, so it can be no name here\n"
